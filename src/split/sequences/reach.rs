//! What callers reach: functions by the names in texts, and the sequences that these name.

use super::body::Body;
use super::by_table::{self, OfTable};
use super::callers::TableCaller;
use super::doings::Doings;
use super::draw::SequenceName;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What a caller reaches.
pub struct Reached<'a> {
    pub caller: &'a TableCaller,
    /// The function that names it, as SQL calls it.
    pub signature: String,
    pub sequence: &'a SequenceName,
    pub is_sure: bool,
    /// Columns that are named by all texts which the caller reaches.
    pub words: Rc<BTreeSet<String>>,
    /// What these texts do.
    pub doings: Rc<Doings>,
}

#[derive(Default)]
pub struct AllReached<'a> {
    pub draws: Vec<Reached<'a>>,
    /// What is done for each table, by its position.
    pub doings: Vec<(usize, Rc<Doings>)>,
}

/// The sequences that texts may mean.
pub struct ReachableSequences<'a> {
    pub sequences: &'a [SequenceName],
    /// Sequences of schemas where names are searched by settings of roles.
    pub perhaps: &'a [SequenceName],
    pub of_tables: &'a [OfTable],
    pub schemas: &'a [String],
    pub paths: &'a [String],
}

impl<'a> ReachableSequences<'a> {
    /// Returns those that a text means by their names, and whether that is certain.
    pub fn named_by(&self, body: &Body) -> Vec<(&'a SequenceName, bool)> {
        let by_name = |sequence: &&SequenceName| {
            body.sequences.contains(&sequence.oid)
                || body.words.contains(&sequence.relname)
                    && (self.schemas.contains(&sequence.schema) || body.words.contains(&sequence.schema))
        };
        let sure: Vec<&SequenceName> = self.sequences.iter().filter(by_name).collect();
        let is_elsewhere = |sequence: &&SequenceName| {
            body.words.contains(&sequence.relname)
                && !sure.iter().any(|other| other.relname == sequence.relname)
        };
        let mut found: Vec<(&SequenceName, bool)> =
            self.perhaps.iter().filter(is_elsewhere).map(|sequence| (sequence, false)).collect();
        found.extend(sure.into_iter().map(|sequence| (sequence, true)));
        found
    }

    /// Returns those that a text means by the tables that they belong to. `told`: the text that calls it.
    pub fn of_tables_in(&self, body: &Body, told: Option<&Body>) -> Vec<(&'a SequenceName, bool)> {
        let has =
            |word: &str| body.words.contains(word) || told.is_some_and(|told| told.words.contains(word));
        if !by_table::may_draw(has) {
            return Vec::new();
        }
        let is_near =
            |schema: &String| self.schemas.contains(schema) || self.paths.contains(schema) || has(schema);
        let named = self.of_tables.iter().filter(|of| has(&of.table) && is_near(&of.schema));
        named.map(|of| (&of.sequence, body.serials.contains(&of.table))).collect()
    }
}

/// Functions and texts, and which of them each may call: as numbers, since thousands of functions may call each other.
pub struct Calls<'a> {
    pub number: BTreeMap<&'a str, usize>,
    pub bodies: Vec<&'a Body>,
    may_call: Vec<Vec<usize>>,
}

impl<'a> Calls<'a> {
    pub fn new(bodies: &'a BTreeMap<String, Body>) -> Calls<'a> {
        let number: BTreeMap<&str, usize> =
            bodies.keys().enumerate().map(|(number, key)| (key.as_str(), number)).collect();
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, body) in bodies.values().enumerate() {
            by_name.entry(&body.name).or_default().push(number);
        }
        let calls = |body: &'a Body| -> Vec<usize> {
            let known = body.functions.iter().filter_map(|oid| number.get(oid.as_str()));
            let named = body.words.iter().filter_map(|word| by_name.get(word.as_str())).flatten();
            known.chain(named).copied().collect()
        };
        let may_call = bodies.values().map(calls).collect();
        Calls { number, bodies: bodies.values().collect(), may_call }
    }

    /// Returns what the first ones reach, including themselves, in the first list. The second list has what is reached
    /// only through a table, which they may not write to.
    pub fn reached(&self, first: impl Iterator<Item = usize>) -> [Vec<usize>; 2] {
        let mut is_reached = vec![false; self.bodies.len()];
        let (mut left, mut behind): (Vec<usize>, Vec<usize>) = (first.collect(), Vec::new());
        let mut reached = [Vec::new(), Vec::new()];
        for (of, is_sure) in reached.iter_mut().zip([true, false]) {
            while let Some(number) = left.pop() {
                if !std::mem::replace(&mut is_reached[number], true) {
                    of.push(number);
                    let next = if is_sure && self.bodies[number].is_table { &mut behind } else { &mut left };
                    next.extend(&self.may_call[number]);
                }
            }
            left.append(&mut behind);
        }
        reached
    }
}

/// Returns what callers draw. Callers that differ only in the function that they call count as one.
pub fn drawn<'a>(
    callers: &'a [TableCaller],
    columns: &BTreeSet<String>,
    calls: &Calls<'_>,
    known: &ReachableSequences<'a>,
) -> AllReached<'a> {
    let named = calls.bodies.iter().map(|body| {
        let mut named = known.named_by(body);
        named.extend(known.of_tables_in(body, None));
        named
    });
    let named: Vec<Vec<(&SequenceName, bool)>> = named.collect();
    let columns: Vec<Vec<&String>> =
        calls.bodies.iter().map(|body| columns.intersection(&body.words).collect()).collect();
    let mut alike: BTreeMap<(String, &Option<String>), Vec<&TableCaller>> = BTreeMap::new();
    for caller in callers {
        alike.entry((caller.key(), &caller.column)).or_default().push(caller);
    }
    let mut found = AllReached::default();
    for ((key, _), alike) in alike {
        pgrx::check_for_interrupts!();
        let told = calls.number.get(key.as_str()).map(|number| calls.bodies[*number]);
        let first = alike.iter().filter_map(|caller| caller.function.as_ref()).chain([&key]);
        let [reached, behind_tables] =
            calls.reached(first.filter_map(|key| calls.number.get(key.as_str()).copied()));
        let mut sequences: BTreeMap<(&str, bool), (&SequenceName, usize)> = BTreeMap::new();
        for (number, is_near) in
            reached.iter().map(|number| (number, true)).chain(behind_tables.iter().map(|far| (far, false)))
        {
            let of_tables = told.map(|told| known.of_tables_in(calls.bodies[*number], Some(told)));
            for (sequence, is_sure) in named[*number].iter().copied().chain(of_tables.into_iter().flatten()) {
                sequences.entry((&sequence.oid, is_sure && is_near)).or_insert((sequence, *number));
            }
        }
        let doings = Rc::new(doings(&alike, reached.iter().map(|number| calls.bodies[*number])));
        found.doings.extend(alike.first().map(|caller| (caller.table, doings.clone())));
        let Some(caller) = alike.first().filter(|_| !sequences.is_empty()) else { continue };
        let words = reached.iter().flat_map(|number| columns[*number].iter().copied());
        let fills = alike.iter().flat_map(|caller| &caller.fills);
        let words: Rc<BTreeSet<String>> = Rc::new(words.chain(fills).cloned().collect());
        found.draws.extend(sequences.into_iter().map(|((_, is_sure), (sequence, number))| Reached {
            caller,
            signature: calls.bodies[number].signature.clone(),
            sequence,
            is_sure,
            words: words.clone(),
            doings: doings.clone(),
        }));
    }
    found
}

fn doings<'a>(alike: &[&TableCaller], bodies: impl Iterator<Item = &'a Body>) -> Doings {
    let mut doings = Doings::default();
    let callers: BTreeSet<&Option<String>> = alike.iter().map(|caller| &caller.function).collect();
    for body in bodies {
        doings.add_of_columns(&body.doings);
        let is_called = body.oid.is_some() && !callers.contains(&body.oid);
        doings.called.extend(is_called.then(|| body.name.clone()));
    }
    for column in alike.iter().filter_map(|caller| caller.fill.as_ref()) {
        doings.assign(column, ["nextval".to_owned()].into_iter());
    }
    doings
}
