//! Sequences that functions name: of a column's default, of a domain's, of a trigger, and of what these call. PostgreSQL knows what
//! is in bodies of standard SQL; of others the text is read for names of sequences and functions. Which name a text means, and
//! whether it ever draws, is not to be known: one too many is raised as well, which takes numbers away and gives none out twice.

use super::by_table::{self, OfTable};
use super::callers::{self, Caller};
use super::doings::Doings;
use super::draw::{self, Asked, By, Draw, Named};
use super::names::{names_in, names_that_run};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::{array_of, text_array};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const BODIES: &str = include_str!("../../../sql/sequences/bodies.sql");

/// How the key of a table begins among functions.
const TABLE: &str = "table ";

/// Functions that call functions are followed so far, and so many of them in all.
const DEPTH: usize = 6;
const MOST_FUNCTIONS: usize = 2_000;

#[derive(Default)]
struct Body {
    /// None: a text that is no function's.
    oid: Option<String>,
    /// What it is, and how SQL calls it.
    signature: String,
    name: String,
    /// A table that texts name: whether they write to it, and so run its triggers, is not known.
    is_table: bool,
    words: BTreeSet<String>,
    /// Those that are not in comments.
    named: BTreeSet<String>,
    /// Names in what pg_get_serial_sequence() is asked for.
    serials: BTreeSet<String>,
    functions: Vec<String>,
    sequences: Vec<String>,
    doings: Doings,
}

/// What functions draw from, and what their texts name.
#[derive(Default)]
pub struct Found {
    pub draws: Vec<Draw>,
    pub texts: Texts,
    /// What is done by what a table's writers have called, by the table's position.
    pub doings: BTreeMap<usize, Doings>,
}

#[derive(Default)]
pub struct Texts {
    /// All names that are in them.
    pub words: BTreeSet<String>,
    /// Those that are not in comments.
    pub named: BTreeSet<String>,
    /// What the functions are called themselves.
    pub names: BTreeSet<String>,
    /// The numbers of those that no text calls, but something of a table.
    pub called: BTreeSet<String>,
    /// What they all do.
    pub doings: Doings,
}

/// `tables`: their numbers, `schemas`: where a name without a schema is looked for.
pub fn find(connection: &mut Connection, tables: &[Option<&str>], schemas: &[String]) -> Result<Found> {
    let callers = callers::find(connection, tables)?;
    look(connection, tables, schemas, callers)
}

/// The same of functions that write to the tables, and of which nobody knows whether they are called: they may draw.
pub fn of_writers(connection: &mut Connection, tables: &[Option<&str>], schemas: &[String]) -> Result<Found> {
    let callers = callers::writers(connection, tables)?;
    let mut found = look(connection, tables, schemas, callers)?;
    for draw in &mut found.draws {
        if let By::Function(who) = &draw.by {
            draw.by = By::Perhaps(who.clone());
        }
    }
    Ok(found)
}

fn look(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
    callers: Vec<Caller>,
) -> Result<Found> {
    if callers.is_empty() {
        return Ok(Found::default());
    }
    let mut bodies = bodies(connection, tables, schemas, &callers)?;
    let words: BTreeSet<String> = bodies.values().flat_map(|body| body.words.iter().cloned()).collect();
    let listed: Vec<String> = words.iter().cloned().collect();
    // A text may name the schema, too.
    let places: Vec<String> =
        schemas.iter().chain(&listed).cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let mut sequences = draw::by_name(connection, &places, &listed)?;
    let known: Vec<String> = bodies.values().flat_map(|body| body.sequences.iter().cloned()).collect();
    if !known.is_empty() {
        sequences.extend(draw::by_number(connection, &known)?);
    }
    let of_tables = match by_table::may_draw(|word| words.contains(word)) {
        true => by_table::find(connection, &places, &listed)?,
        false => Vec::new(),
    };
    // Where settings have it, a name may mean another one as well.
    let paths = callers::search_paths(connection)?;
    let perhaps = draw::by_name(connection, &paths, &listed)?;
    let known = Known { sequences: &sequences, perhaps: &perhaps, of_tables: &of_tables, schemas };
    let columns = callers::columns(connection, tables)?;
    let (mut all, mut named) = (Doings::default(), BTreeSet::new());
    for body in bodies.values_mut() {
        all.add(&body.doings);
        named.append(&mut body.named);
        body.doings.keep_of(&columns);
    }
    let reached = drawn(&callers, &columns, &bodies, &known);
    let mut doings: BTreeMap<usize, Doings> = BTreeMap::new();
    for (table, of) in &reached.doings {
        doings.entry(*table).or_default().add_of_columns(of);
    }
    let draws = describe(connection, tables, reached.draws)?;
    let functions = bodies.into_values().filter(|body| body.oid.is_some());
    let names = functions.map(|body| body.name).filter(|name| !name.is_empty()).collect();
    let called = callers.into_iter().filter_map(|caller| caller.function).collect();
    Ok(Found { draws, texts: Texts { words, named, names, called, doings: all }, doings })
}

/// Those that are called, and those that these may call, by their numbers; and tables and views that they name, whose triggers,
/// defaults and rules call others.
fn bodies(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
    callers: &[Caller],
) -> Result<BTreeMap<String, Body>> {
    let mut found: BTreeMap<String, Body> = BTreeMap::new();
    for caller in callers.iter().filter(|caller| caller.text.is_some() || caller.sequence.is_some()) {
        let body = found.entry(caller.key()).or_default();
        body.read(caller.text.as_deref().unwrap_or_default());
        body.sequences.extend(caller.sequence.clone());
    }
    let mut oids: Vec<String> = callers.iter().filter_map(|caller| caller.function.clone()).collect();
    let mut asked: BTreeSet<String> = found.values().flat_map(|body| body.words.iter().cloned()).collect();
    let mut names: Vec<String> = asked.iter().cloned().collect();
    let texts = found.len();
    let moving = array_of(tables.iter().copied());
    for _ in 0..DEPTH {
        let lists = [text_array(&oids), text_array(&names)];
        let mut rows = catalogs::ask(connection, BODIES, &[Some(&lists[0]), Some(&lists[1])])?.rows;
        // A text may name the schema, too.
        let places: BTreeSet<String> = schemas.iter().chain(&asked).cloned().collect();
        let places = text_array(&places.into_iter().collect::<Vec<_>>());
        let lists = [Some(places.as_str()), Some(&lists[1]), Some(&moving)];
        rows.extend(callers::relations(connection, &lists)?.rows);
        let new: Vec<(String, Body)> =
            rows.into_iter().filter_map(body).filter(|(key, _)| !found.contains_key(key)).collect();
        if new.is_empty() || found.len() - texts > MOST_FUNCTIONS {
            break;
        }
        oids = new.iter().flat_map(|(_, body)| body.functions.iter().cloned()).collect();
        names = new
            .iter()
            .flat_map(|(_, body)| body.words.iter().cloned())
            .filter(|name| asked.insert(name.clone()))
            .collect();
        found.extend(new);
    }
    Ok(found)
}

fn body(row: Vec<Option<String>>) -> Option<(String, Body)> {
    let [key, signature, name, text, functions, sequences] = <[_; 6]>::try_from(row).ok()?;
    let list = |cell: Option<String>| -> Vec<String> {
        let cell = cell.unwrap_or_default();
        let items = cell.trim_matches(['{', '}']).split(',').filter(|item| item.parse::<u32>().is_ok());
        items.map(str::to_owned).collect()
    };
    let key = key?;
    let is_function = key.parse::<u32>().is_ok();
    let mut body = Body {
        oid: is_function.then(|| key.clone()),
        is_table: !is_function && key.starts_with(TABLE),
        signature: if is_function { format!("function {}", signature?) } else { signature? },
        name: name?,
        functions: list(functions),
        sequences: list(sequences),
        ..Body::default()
    };
    body.read(&text.unwrap_or_default());
    Some((key, body))
}

impl Body {
    fn read(&mut self, text: &str) {
        #[cfg(not(test))]
        pgrx::check_for_interrupts!();
        self.words.extend(names_in(text));
        self.named.extend(names_that_run(text));
        self.serials.extend(by_table::asked_for(text));
        self.doings.add(&Doings::of(text));
    }
}

/// What a caller reaches.
struct Reached<'a> {
    caller: &'a Caller,
    /// As SQL calls the function that names it.
    signature: String,
    sequence: &'a Named,
    is_sure: bool,
    /// Columns that all texts name which the caller reaches.
    words: Rc<BTreeSet<String>>,
    /// What they do.
    doings: Rc<Doings>,
}

#[derive(Default)]
struct AllReached<'a> {
    draws: Vec<Reached<'a>>,
    /// Of each table, by its position.
    doings: Vec<(usize, Rc<Doings>)>,
}

/// The sequences that texts may mean.
struct Known<'a> {
    sequences: &'a [Named],
    /// Of schemas where names are looked for by somebody's settings.
    perhaps: &'a [Named],
    of_tables: &'a [OfTable],
    schemas: &'a [String],
}

impl<'a> Known<'a> {
    /// Those that a text means by their names, and whether that is sure.
    fn named_by(&self, body: &Body) -> Vec<(&'a Named, bool)> {
        let by_name = |sequence: &&Named| {
            body.sequences.contains(&sequence.oid)
                || body.words.contains(&sequence.relname)
                    && (self.schemas.contains(&sequence.schema) || body.words.contains(&sequence.schema))
        };
        let sure: Vec<&Named> = self.sequences.iter().filter(by_name).collect();
        let is_elsewhere = |sequence: &&Named| {
            body.words.contains(&sequence.relname)
                && !sure.iter().any(|other| other.relname == sequence.relname)
        };
        let mut found: Vec<(&Named, bool)> =
            self.perhaps.iter().filter(is_elsewhere).map(|sequence| (sequence, false)).collect();
        found.extend(sure.into_iter().map(|sequence| (sequence, true)));
        found
    }

    /// The same by the tables that they belong to. `told`: what it is called with.
    fn of_tables_in(&self, body: &Body, told: Option<&Body>) -> Vec<(&'a Named, bool)> {
        let has =
            |word: &str| body.words.contains(word) || told.is_some_and(|told| told.words.contains(word));
        if !by_table::may_draw(has) {
            return Vec::new();
        }
        let is_near = |schema: &String| self.schemas.contains(schema) || has(schema);
        let named = self.of_tables.iter().filter(|of| has(&of.table) && is_near(&of.schema));
        named.map(|of| (&of.sequence, body.serials.contains(&of.table))).collect()
    }
}

/// Functions and texts, and which of them each may call: as numbers, since thousands of functions may call each other.
struct Calls<'a> {
    number: BTreeMap<&'a str, usize>,
    bodies: Vec<&'a Body>,
    may_call: Vec<Vec<usize>>,
}

impl<'a> Calls<'a> {
    fn new(bodies: &'a BTreeMap<String, Body>) -> Calls<'a> {
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

    /// What the first ones reach, they among it; the second: by way of a table alone, which they may not write to.
    fn reached(&self, first: impl Iterator<Item = usize>) -> [Vec<usize>; 2] {
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

/// Callers that differ only in the function that they call are one.
fn drawn<'a>(
    callers: &'a [Caller],
    columns: &BTreeSet<String>,
    bodies: &BTreeMap<String, Body>,
    known: &Known<'a>,
) -> AllReached<'a> {
    let calls = Calls::new(bodies);
    let named = calls.bodies.iter().map(|body| {
        let mut named = known.named_by(body);
        named.extend(known.of_tables_in(body, None));
        named
    });
    let named: Vec<Vec<(&Named, bool)>> = named.collect();
    let columns: Vec<Vec<&String>> =
        calls.bodies.iter().map(|body| columns.intersection(&body.words).collect()).collect();
    let mut alike: BTreeMap<(String, &Option<String>), Vec<&Caller>> = BTreeMap::new();
    for caller in callers {
        alike.entry((caller.key(), &caller.column)).or_default().push(caller);
    }
    let mut found = AllReached::default();
    for ((key, _), alike) in alike {
        pgrx::check_for_interrupts!();
        let told = bodies.get(&key);
        let first = alike.iter().filter_map(|caller| caller.function.as_ref()).chain([&key]);
        let [reached, behind_tables] =
            calls.reached(first.filter_map(|key| calls.number.get(key.as_str()).copied()));
        let mut sequences: BTreeMap<(&str, bool), (&Named, usize)> = BTreeMap::new();
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

fn doings<'a>(alike: &[&Caller], bodies: impl Iterator<Item = &'a Body>) -> Doings {
    let mut doings = Doings::default();
    for body in bodies {
        doings.add_of_columns(&body.doings);
        let is_called = body.oid.is_some() && alike.iter().all(|caller| caller.function != body.oid);
        doings.called.extend(is_called.then(|| body.name.clone()));
    }
    for column in alike.iter().filter_map(|caller| caller.fill.as_ref()) {
        doings.assign(column, ["nextval".to_owned()].into_iter());
    }
    doings
}

fn describe(
    connection: &mut Connection,
    tables: &[Option<&str>],
    found: Vec<Reached<'_>>,
) -> Result<Vec<Draw>> {
    let asked: Vec<Asked<'_>> = found
        .iter()
        .map(|reached| Asked {
            oid: &reached.sequence.oid,
            table: tables.get(reached.caller.table).copied().flatten(),
            role: None,
        })
        .collect();
    let facts = draw::facts(connection, &asked)?;
    let draws = found.into_iter().zip(facts).filter_map(|(reached, sequence)| {
        let Reached { caller, signature, words, is_sure, doings, .. } = reached;
        let who = match signature.is_empty() {
            true => caller.what.clone(),
            false => format!("{}, by {signature}", caller.what),
        };
        Some(Draw {
            words,
            table: Some(caller.table),
            column: caller.column.clone(),
            by: if is_sure { By::Function(who) } else { By::Perhaps(who) },
            sequence: sequence?,
            in_unique: true,
            holds: None,
            role: None,
            doings,
        })
    });
    Ok(draws.collect())
}
