//! Which sequences of the target have to be past which of the source: determined by what draws from them, never by
//! their order, and by their names only if nothing else is known of them.
//!
//! A column's numbers come from all sequences that fill it. So each of the target's must be past each of the source's
//! that does.

use super::draw::{Draw, Drawer, DrawnSequence};
use crate::catalog::split::{ColumnMap, Plan};
use crate::remote::quote::qualified;
use std::collections::{BTreeMap, BTreeSet};

/// A sequence of the target, and those of the source whose numbers it must not give out again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequencePair {
    pub from: Vec<DrawnSequence>,
    pub to: DrawnSequence,
    /// The position of the first table that uses it.
    pub table: Option<usize>,
    /// A repeated number may be refused by an index.
    pub in_unique: bool,
    /// Something draws from it, as far as can be known; otherwise it is raised if possible.
    pub is_sure: bool,
    /// The greatest number that all columns hold which the target's fills. `None` if any, or unknown.
    pub holds: Option<i64>,
}

/// What prevents a split from giving out each number once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceProblem {
    pub table: Option<usize>,
    pub text: String,
    pub hint: String,
}

/// A sequence that must be found on the target by its name: nothing else is known of its counterpart there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedSequence {
    pub from: Draw,
    /// The schema of the target where it would be.
    pub schema: String,
    /// Another sequence fills its column by now: clients can do without it.
    pub is_old: bool,
}

#[derive(Default, Debug)]
pub struct SequencePairing {
    pub pairs: Vec<SequencePair>,
    pub wanted: Vec<WantedSequence>,
    pub problems: Vec<SequenceProblem>,
    /// What deserves attention.
    pub remarks: Vec<SequenceProblem>,
}

/// The namespaces of both shards: a name in one of them is the same name in the other.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub source: &'a str,
    pub target: &'a str,
}

impl<'a> Places<'a> {
    pub fn of(plan: &'a Plan) -> Places<'a> {
        Places { source: &plan.source.namespace, target: &plan.target.namespace }
    }

    /// Returns the target's schema for a schema of the source.
    pub fn there(&self, schema: &str) -> String {
        if schema == self.source { self.target } else { schema }.to_owned()
    }
}

/// How the source fills a column of the target.
#[derive(PartialEq, Eq, Debug)]
enum Filled<'a> {
    By(String),
    /// An expression fills it that is not a column.
    Computed(&'a str),
    /// Nothing of the source fills it.
    No,
}

fn filled<'a>(maps: &'a [ColumnMap], column: &str) -> Filled<'a> {
    match maps.iter().find(|map| map.column == column).map(|map| map.expression.as_deref()) {
        None => Filled::By(column.to_owned()),
        Some(None) => Filled::No,
        Some(Some(expression)) => plain_column(expression).map_or(Filled::Computed(expression), Filled::By),
    }
}

/// Returns the column of the source that fills one of the target, as it is.
pub fn plainly_filled(maps: &[ColumnMap], column: &str) -> Option<String> {
    match filled(maps, column) {
        Filled::By(name) => Some(name),
        Filled::Computed(_) | Filled::No => None,
    }
}

/// Returns the column that an expression consists of. Returns None if it computes something.
fn plain_column(expression: &str) -> Option<String> {
    let mut text = expression.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        text = inner.trim();
    }
    // This is a cast to a numeric type that holds the same numbers.
    if let Some((before, cast)) = text.rsplit_once("::")
        && ["smallint", "integer", "int", "int4", "int8", "int2", "bigint", "numeric"]
            .contains(&cast.trim().to_lowercase().as_str())
    {
        return plain_column(before);
    }
    let text = text.strip_prefix("t.").unwrap_or(text);
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    if let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return (!quoted.replace("\"\"", "").contains('"')).then(|| quoted.replace("\"\"", "\""));
    }
    let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (begins && text.chars().all(is_name)).then(|| text.to_lowercase())
}

/// Pairs the sequences of both sides. `maps`: those of each table.
pub fn pair(from: &[Draw], to: &[Draw], maps: &[&[ColumnMap]], places: Places<'_>) -> SequencePairing {
    let mut pairing = SequencePairing::default();
    for there in to.iter().filter(|draw| draw.column.is_some()) {
        of_column(&mut pairing, from, there, maps);
    }
    // A function that may draw may name columns of other tables.
    for there in to.iter().filter(|draw| draw.is_of_trigger() && draw.is_sure()) {
        of_trigger(&mut pairing, from, there, maps);
    }
    for here in from.iter().filter(|draw| draw.by == Drawer::Owned) {
        without_counterpart(&mut pairing, here, from, to, maps, places);
    }
    by_functions(&mut pairing, from, to, places);
    let named = from.iter().filter(|draw| matches!(draw.by, Drawer::Said | Drawer::Key | Drawer::Perhaps(_)));
    pairing.wanted.extend(named.map(|here| wanted(here, places)));
    pairing.pairs = merged(std::mem::take(&mut pairing.pairs));
    pairing
}

fn wanted(here: &Draw, places: Places<'_>) -> WantedSequence {
    WantedSequence { schema: places.there(&here.sequence.schema), from: here.clone(), is_old: false }
}

fn of_column(pairing: &mut SequencePairing, from: &[Draw], there: &Draw, maps: &[&[ColumnMap]]) {
    let (Some(table), Some(column)) = (there.table, &there.column) else { return };
    let of_table = maps.get(table).copied().unwrap_or_default();
    match filled(of_table, column) {
        Filled::No => {}
        Filled::Computed(expression) => {
            if there.is_drawn() {
                let sequence = &there.sequence.name;
                pairing.problems.push(SequenceProblem {
                    table: Some(table),
                    text: format!(
                        "column \"{column}\" is computed by {expression}, and sequence {sequence} fills it for the target's clients: the value that it has to reach is not known"
                    ),
                    hint: format!(
                        "Fill the column from a column of the source with shard_split_map(). Or remove {sequence} from the column's default."
                    ),
                });
            }
        }
        Filled::By(name) => {
            let is_of = |here: &&Draw| here.table == Some(table) && here.column.as_deref() == Some(&name);
            let by_trigger = |here: &&Draw| here.table == Some(table) && here.may_fill_by_trigger(&name);
            let mut sequences = each_once(from.iter().filter(is_of));
            if sequences.is_empty() {
                sequences = each_once(from.iter().filter(by_trigger));
            }
            let is_sure = from.iter().any(|here| here.is_sure() && (is_of(&here) || by_trigger(&here)));
            if !is_sure {
                pairing.remarks.extend(filled_there_alone(from, there, table, &name));
            }
            if !sequences.is_empty() {
                pairing.passes(sequences, there, is_sure);
            }
        }
    }
}

/// Pairs a trigger of the target that may fill a column it names, while something else fills it on the source.
fn of_trigger(pairing: &mut SequencePairing, from: &[Draw], there: &Draw, maps: &[&[ColumnMap]]) {
    let Some(table) = there.table else { return };
    let of_table = maps.get(table).copied().unwrap_or_default();
    let mut named = BTreeSet::new();
    for column in there.words.iter() {
        if let Filled::By(name) = filled(of_table, column) {
            named.insert(name);
        }
    }
    let is_of = |here: &&Draw| {
        here.table == Some(table) && here.column.as_ref().is_some_and(|column| named.contains(column))
    };
    let sequences = each_once(from.iter().filter(is_of));
    if !sequences.is_empty() {
        pairing.passes(sequences, there, true);
    }
}

/// Returns each sequence once: a serial's is drawn by the default and belongs to the column.
fn each_once<'a>(draws: impl Iterator<Item = &'a Draw>) -> Vec<DrawnSequence> {
    let mut sequences: Vec<DrawnSequence> = Vec::new();
    for draw in draws {
        if !sequences.iter().any(|known| known.oid == draw.sequence.oid) {
            sequences.push(draw.sequence.clone());
        }
    }
    sequences
}

impl SequencePairing {
    fn passes(&mut self, from: Vec<DrawnSequence>, there: &Draw, is_sure: bool) {
        self.pairs.push(SequencePair {
            from,
            to: there.sequence.clone(),
            table: there.table,
            in_unique: there.in_unique,
            is_sure: is_sure && there.is_sure(),
            holds: there.holds,
        });
    }
}

/// Returns a problem if rows are copied with numbers for which no sequence of the source is known: the target's
/// position cannot be determined.
fn filled_there_alone(from: &[Draw], there: &Draw, table: usize, column: &str) -> Option<SequenceProblem> {
    let may_fill = |here: &Draw| {
        here.is_sure()
            && here.table == Some(table)
            && here.column.as_deref().is_none_or(|filled| filled == column)
    };
    if !there.is_drawn() || !there.in_unique || from.iter().any(may_fill) {
        return None;
    }
    let sequence = &there.sequence.name;
    Some(SequenceProblem {
        table: Some(table),
        text: format!(
            "sequence {sequence} fills column \"{column}\" on the target alone: it is not raised past the numbers that rows bring"
        ),
        hint: format!(
            "Set it past them on the target: SELECT setval('{sequence}', ..). Or remove the column's default there."
        ),
    })
}

/// Handles a sequence that belongs to a column without a default: clients draw from it by its name.
fn without_counterpart(
    pairing: &mut SequencePairing,
    here: &Draw,
    from: &[Draw],
    to: &[Draw],
    maps: &[&[ColumnMap]],
    places: Places<'_>,
) {
    let same = |draw: &Draw| draw.table == here.table && draw.column == here.column;
    let drawn = |draw: &&Draw| draw.is_drawn() && same(draw);
    // A serial's sequence is replaced by the default of the column on the target.
    if from.iter().filter(drawn).any(|draw| draw.sequence.oid == here.sequence.oid) {
        return;
    }
    let is_old = from.iter().any(|draw| drawn(&draw));
    let of_table = here.table.and_then(|table| maps.get(table).copied()).unwrap_or_default();
    let is_filled_by_it = |there: &Draw| {
        there.is_of_column()
            && there.table == here.table
            && there.column.as_deref().is_some_and(|column| {
                matches!(filled(of_table, column), Filled::By(name) if Some(name.as_str()) == here.column.as_deref())
            })
    };
    let is_there = if is_old {
        to.iter().any(|there| there.by == Drawer::Owned && is_filled_by_it(there))
    } else {
        to.iter().any(is_filled_by_it)
    };
    if !is_there {
        pairing.wanted.push(WantedSequence { is_old, ..wanted(here, places) });
    }
}

/// Pairs sequences of the same table's functions by name; if one of each side remains, they are each other's
/// counterparts.
fn by_functions(pairing: &mut SequencePairing, from: &[Draw], to: &[Draw], places: Places<'_>) {
    fn named(draws: &[Draw]) -> BTreeMap<usize, Vec<&Draw>> {
        let mut by_table: BTreeMap<usize, Vec<&Draw>> = BTreeMap::new();
        for draw in draws.iter().filter(|draw| matches!(draw.by, Drawer::Function(_))) {
            let Some(table) = draw.table else { continue };
            let known = by_table.entry(table).or_default();
            if !known.iter().any(|other| other.sequence.oid == draw.sequence.oid) {
                known.push(draw);
            }
        }
        by_table
    }
    let mut there = named(to);
    for (table, here) in named(from) {
        let mut candidates = there.remove(&table).unwrap_or_default();
        let mut left = Vec::new();
        for draw in here {
            let is_same = |other: &&Draw| {
                other.sequence.relname == draw.sequence.relname
                    && other.sequence.schema == places.there(&draw.sequence.schema)
            };
            match candidates.iter().position(is_same) {
                Some(position) => pairing.pairs.push(of_function(draw, candidates.remove(position))),
                None => left.push(draw),
            }
        }
        match (left.as_slice(), candidates.as_slice()) {
            ([here], [there]) => pairing.pairs.push(of_function(here, there)),
            // If something else fills the column, it is not needed.
            (left, _) => pairing.wanted.extend(left.iter().map(|here| {
                let is_filled = |there: &Draw| {
                    there.is_drawn() && there.table == here.table && there.column == here.column
                };
                WantedSequence { is_old: to.iter().any(is_filled), ..wanted(here, places) }
            })),
        }
    }
}

fn of_function(here: &Draw, there: &Draw) -> SequencePair {
    SequencePair {
        from: vec![here.sequence.clone()],
        to: there.sequence.clone(),
        table: there.table,
        in_unique: here.in_unique || there.in_unique,
        is_sure: true,
        holds: there.holds,
    }
}

/// Returns each sequence of the target once. If it is known in several ways, it may be set if one of them permits it.
pub fn merged(pairs: Vec<SequencePair>) -> Vec<SequencePair> {
    let mut all: Vec<SequencePair> = Vec::new();
    for pair in pairs {
        match all.iter_mut().find(|known| known.to.oid == pair.to.oid) {
            None => all.push(pair),
            Some(known) => {
                for sequence in pair.from {
                    if !known.from.iter().any(|other| other.oid == sequence.oid) {
                        known.from.push(sequence);
                    }
                }
                if pair.to.may_not.is_none() {
                    known.to.may_not = None;
                }
                known.in_unique |= pair.in_unique;
                known.is_sure |= pair.is_sure;
                known.holds = [known.holds, pair.holds].into_iter().flatten().min();
            }
        }
    }
    all
}

impl WantedSequence {
    /// Returns the name, qualified and quoted.
    pub fn name(&self) -> String {
        qualified(&self.schema, &self.from.sequence.relname)
    }

    /// Describes what is known to draw from it.
    pub fn why(&self) -> String {
        match (&self.from.by, &self.from.column) {
            (Drawer::Function(who), _) => format!("{who} names it"),
            (Drawer::Perhaps(who), _) => format!("{who} may use it"),
            (Drawer::Said, _) => "shard_sequence_add() names it".to_owned(),
            (Drawer::Key, _) => "its name holds a key that moves".to_owned(),
            (Drawer::Identity | Drawer::Default | Drawer::Owned, Some(column)) => {
                format!("it belongs to column \"{column}\"")
            }
            (Drawer::Identity | Drawer::Default | Drawer::Owned, None) => "it belongs to a column".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn sequence(name: &str) -> DrawnSequence {
        let (schema, relname) = name.split_once('.').unwrap();
        DrawnSequence {
            oid: name.into(),
            name: name.into(),
            schema: schema.into(),
            relname: relname.into(),
            ..DrawnSequence::default()
        }
    }

    fn draw(column: Option<&str>, by: Drawer, name: &str) -> Draw {
        Draw {
            table: Some(0),
            column: column.map(str::to_owned),
            by,
            sequence: sequence(name),
            in_unique: true,
            holds: None,
            role: None,
            words: Default::default(),
            doings: Default::default(),
        }
    }

    const PLACES: Places<'_> = Places { source: "a", target: "b" };

    fn pairs(from: &[Draw], to: &[Draw], maps: &[ColumnMap]) -> Vec<(Vec<String>, String)> {
        let all = pair(from, to, &[maps], PLACES).pairs;
        all.into_iter()
            .map(|pair| (pair.from.into_iter().map(|from| from.name).collect(), pair.to.name))
            .collect()
    }

    fn map(column: &str, expression: &str) -> ColumnMap {
        ColumnMap { column: column.into(), expression: Some(expression.into()) }
    }

    #[test]
    fn all_sequences_of_a_column_are_passed_whatever_they_are_called() {
        let from =
            [draw(Some("id"), Drawer::Owned, "a.a_old"), draw(Some("id"), Drawer::Identity, "a.z_new")];
        let both = || vec!["a.a_old".to_owned(), "a.z_new".to_owned()];
        assert_eq!(
            pairs(&from, &[draw(Some("id"), Drawer::Identity, "b.x")], &[]),
            [(both(), "b.x".to_owned())]
        );
        let to = [draw(Some("id"), Drawer::Identity, "b.a"), draw(Some("id"), Drawer::Owned, "b.z")];
        assert_eq!(pairs(&from, &to, &[]), [(both(), "b.a".to_owned()), (both(), "b.z".to_owned())]);
        // A serial is drawn and belongs to its column: that is one sequence.
        let serial = [draw(Some("id"), Drawer::Default, "a.s"), draw(Some("id"), Drawer::Owned, "a.s")];
        assert_eq!(pairs(&serial, &[draw(Some("id"), Drawer::Identity, "b.x")], &[])[0].0.len(), 1);
    }

    #[test]
    fn a_sequence_follows_the_mapping_of_its_column() {
        let from = [draw(Some("old"), Drawer::Identity, "a.s"), draw(Some("Odd"), Drawer::Identity, "a.odd")];
        let to = [draw(Some("new"), Drawer::Identity, "b.s")];
        for expression in ["old", " (old) ", "t.old", "OLD::bigint", "(\"old\"::int)::bigint"] {
            assert_eq!(pairs(&from, &to, &[map("new", expression)]).len(), 1, "{expression}");
        }
        assert_eq!(pairs(&from, &to, &[map("new", "\"Odd\"")])[0].0, ["a.odd"]);
        for expression in ["old + 1", "f(old)", "old::text::bigint", "\"a\" || \"b\""] {
            let pairing = pair(&from, &to, &[&[map("new", expression)]], PLACES);
            assert!(pairing.pairs.is_empty() && pairing.problems.len() == 1, "{expression}");
        }
        let left_out = [ColumnMap { column: "new".into(), expression: None }];
        let pairing = pair(&from, &to, &[&left_out], PLACES);
        assert!(pairing.pairs.is_empty() && pairing.problems.is_empty());
    }

    #[test]
    fn of_functions_names_count_and_the_last_one() {
        let by = |name| draw(None, Drawer::Function("trigger".into()), name);
        let from = [by("a.one"), by("a.two"), by("c.three")];
        let to = [by("b.two"), by("c.three"), by("b.other")];
        let all = pairs(&from, &to, &[]);
        let named: Vec<(&str, &str)> = all.iter().map(|(from, to)| (from[0].as_str(), to.as_str())).collect();
        assert_eq!(named, [("a.two", "b.two"), ("c.three", "c.three"), ("a.one", "b.other")]);
        // Which of two it is cannot be known: it is searched by its name.
        let pairing = pair(&from[..2], &to[1..], &[&[]], PLACES);
        let wanted: Vec<String> = pairing.wanted.iter().map(WantedSequence::name).collect();
        assert_eq!(wanted, ["\"b\".\"one\"", "\"b\".\"two\""]);
    }

    #[test]
    fn a_column_is_filled_by_a_function_on_one_side_and_by_itself_on_the_other() {
        let by = |column: Option<&str>, name: &str, words: &[&str]| Draw {
            words: Rc::new(words.iter().map(|word| (*word).to_owned()).collect()),
            ..draw(column, Drawer::Function("f".into()), name)
        };
        let serial = |name: &str| [draw(Some("id"), Drawer::Default, name)];
        let passed = || [(vec!["a.s".to_owned()], "b.t".to_owned())];
        assert_eq!(pairs(&[by(Some("id"), "a.s", &[])], &serial("b.t"), &[]), passed());
        assert_eq!(pairs(&serial("a.s"), &[by(Some("id"), "b.t", &[])], &[]), passed());
        assert_eq!(pairs(&[by(None, "a.s", &["id"])], &serial("b.t"), &[]), passed());
        assert_eq!(pairs(&serial("a.s"), &[by(None, "b.t", &["id", "x"])], &[]), passed());
        assert_eq!(pairs(&serial("a.s"), &[by(None, "b.t", &["x"])], &[]), []);
    }

    #[test]
    fn what_clients_draw_from_by_its_name_has_to_be_there() {
        let owned = draw(Some("id"), Drawer::Owned, "a.s");
        let wanted = |to: &[Draw]| pair(std::slice::from_ref(&owned), to, &[&[]], PLACES).wanted.len();
        assert_eq!((wanted(&[]), wanted(&[draw(Some("id"), Drawer::Owned, "b.s")])), (1, 0));
        // An old one beside an identity is not needed.
        let both = [owned.clone(), draw(Some("id"), Drawer::Identity, "a.i")];
        let pairing = pair(&both, &[draw(Some("id"), Drawer::Identity, "b.i")], &[&[]], PLACES);
        assert!(matches!(pairing.wanted.as_slice(), [WantedSequence { is_old: true, .. }]), "{pairing:?}");
    }
}
