//! The origin of the values of a key.

use super::drawn::{Drawn, DrawnTable};
use super::index::{IndexPart, Referred, UniqueIndex};
use crate::agent::session::Side as At;
use crate::numbers::introspect::ShardSequence;
use crate::numbers::progression::Numbers;
use crate::split::sequences::doings::Doings;
use std::collections::{BTreeMap, BTreeSet};

/// What fills the columns of both sides' tables: of the source, and of the target.
pub struct Fillers {
    pub sides: [UniqueSide; 2],
    /// Whether both sides are one database: a sequence of the same number is then the same sequence.
    pub is_one_place: bool,
}

#[derive(Default)]
pub struct UniqueSide {
    pub sequences: Vec<ShardSequence>,
    /// What functions of defaults and triggers draw from.
    pub drawn: Vec<Drawn>,
    /// What these functions do, by the table's position.
    pub doings: BTreeMap<usize, Doings>,
    /// The tables, by their positions.
    pub tables: Vec<DrawnTable>,
    /// Their names, qualified and quoted.
    pub names: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Comes {
    /// The values come from a number that sequences of both sides may give out.
    Met(MetValues),
    /// Both sides make different values; the text explains how.
    Apart(String),
    /// Both sides make different values until a sequence restarts: how, and what to do about that.
    ApartForNow(String, String),
    /// The values come from the application.
    Application(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct MetValues {
    pub from: String,
    pub to: String,
    pub number: i64,
    /// The function that draws, if nothing else is known of it.
    pub by: Option<String>,
    /// How the number becomes a value of the key, if it is another column's.
    pub through: Option<String>,
    /// Whether it is certain that the function is called, and draws for this column.
    pub is_sure: bool,
}

/// How a value is made of a sequence's number.
#[derive(Clone, PartialEq, Eq)]
enum Through {
    Itself,
    Referred(String),
    Computed(String),
}

impl Fillers {
    /// Returns the origin of a key's values. One part that is never the same on both sides suffices. `side`: whose
    /// index it is.
    pub fn of(&self, index: &UniqueIndex, side: At, on_source: &[UniqueIndex]) -> Comes {
        let (mut met, mut doubt, mut for_now) = (None, None, None);
        let mut application = Vec::new();
        for (at, part) in index.parts.iter().enumerate() {
            let there =
                on_source.iter().find(|other| other.is_like(index)).and_then(|other| other.parts.get(at));
            match self.of_part(index.position, side, part, there.unwrap_or(part)) {
                Comes::Met(found) if found.is_sure => met = met.or(Some(found)),
                Comes::Met(found) => doubt = doubt.or(Some(found)),
                Comes::Apart(what) => return Comes::Apart(what),
                found @ Comes::ApartForNow(..) => for_now = for_now.or(Some(found)),
                Comes::Application(what) => application.push(what),
            }
        }
        if let Some(found) = for_now {
            return found;
        }
        met.or(doubt).map_or_else(|| Comes::Application(application.join(", ")), Comes::Met)
    }

    /// Returns the origin of a part's values. `there`: the part of the source, if it has the same key.
    fn of_part(&self, position: usize, side: At, part: &IndexPart, there: &IndexPart) -> Comes {
        let renamed = |part: &IndexPart, name: &dyn Fn(&DrawnTable) -> Option<String>| {
            let table = self.sides[1].tables.get(position)?;
            let column = part.column.as_ref().map_or(Some(None), |_| name(table).map(Some))?;
            Some(IndexPart { column, ..part.clone() })
        };
        let column = part.column.as_deref().unwrap_or_default();
        let ends = match side {
            At::Target => (renamed(there, &|table| table.source_of(column)), Some(part.clone())),
            At::Source => (Some(there.clone()), renamed(part, &|table| table.target_of(column))),
        };
        let of = |side: &UniqueSide, part: Option<IndexPart>| {
            part.map_or((Vec::new(), Through::Itself), |part| side.numbers(position, &part))
        };
        let (from, through) = of(&self.sides[0], ends.0);
        let (to, through_there) = of(&self.sides[1], ends.1);
        let through = if through == Through::Itself { through_there } else { through };
        let name = part.column.as_ref();
        if let (Some(first), Some(other)) = (from.first(), to.first()) {
            let met = self.met(&from, &to, &through);
            return met.map(Comes::Met).unwrap_or_else(|| match &through {
                Through::Itself => {
                    let how = format!(
                        "values of \"{}\" come from sequences, which give out no number twice ({}, {})",
                        name.unwrap_or(&part.text),
                        range(first.numbers),
                        range(other.numbers)
                    );
                    match restarted(first, other).or_else(|| by_turns(first, other)) {
                        Some(hint) => Comes::ApartForNow(how, hint),
                        None => Comes::Apart(how),
                    }
                }
                Through::Referred(table) => Comes::Apart(format!(
                    "values of \"{}\" are those of {table}, which come from sequences that give out no number twice",
                    name.unwrap_or(&part.text)
                )),
                Through::Computed(columns) => Comes::Application(format!(
                    "values of {} are computed from {columns}, whose sequences give out no number twice",
                    part.text
                )),
            });
        }
        let Some(name) = name else {
            return Comes::Application(format!("values of {} come from the application", part.text));
        };
        let made =
            |part: &IndexPart| part.default.as_deref().and_then(|default| maker(default, part.is_uuid));
        match (made(there), made(part)) {
            (Some(_), Some(how)) => Comes::Apart(format!("values of \"{name}\" are {how}")),
            _ if part.is_uuid && from.is_empty() && to.is_empty() => {
                Comes::Apart(format!("values of \"{name}\" are uuids of the application"))
            }
            _ => match part.refers.first() {
                Some(first) if part.refers.iter().any(|referred| self.is_key(referred)) => {
                    Comes::Apart(format!("values of \"{name}\" are the keys of {}", first.table))
                }
                Some(first) => Comes::Application(format!(
                    "values of \"{name}\" are those of {}, to which it refers",
                    first.table
                )),
                None => Comes::Application(format!(
                    "values of \"{name}\" ({}) come from the application{}",
                    part.type_name,
                    match (from.first(), to.first()) {
                        (Some(one), None) =>
                            format!(" on the target, from sequence {} on the source", one.name),
                        (None, Some(one)) =>
                            format!(" on the source, from sequence {} on the target", one.name),
                        _ => String::new(),
                    }
                )),
            },
        }
    }

    /// Returns a certain match, or else a possible one.
    fn met(&self, from: &[Filling], to: &[Filling], through: &Through) -> Option<MetValues> {
        let mut doubt = None;
        for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
            let is_one = self.is_one_place && from.oid == to.oid;
            let Some(number) = from.numbers.meet(to.numbers).filter(|_| !is_one) else { continue };
            let met = MetValues {
                from: from.name.clone(),
                to: to.name.clone(),
                number,
                by: from.by.clone().or_else(|| to.by.clone()),
                through: through.text(),
                is_sure: from.is_sure && to.is_sure,
            };
            if met.is_sure {
                return Some(met);
            }
            doubt = doubt.or(Some(met));
        }
        doubt
    }

    /// Whether a column has the routing key: each of its values is on one shard.
    fn is_key(&self, referred: &Referred) -> bool {
        let side = &self.sides[1];
        let position = side.position(referred).and_then(|position| side.tables.get(position));
        position.is_some_and(|table| table.shard_by == referred.column)
    }
}

impl UniqueSide {
    fn position(&self, referred: &Referred) -> Option<usize> {
        self.names.iter().position(|name| *name == referred.table)
    }

    /// Returns the sequences whose numbers a part of a key has: directly, through a column that it refers to, or by an
    /// expression.
    fn numbers(&self, position: usize, part: &IndexPart) -> (Vec<Filling>, Through) {
        if let Some(name) = &part.column {
            let own = self.filling(&(position, name.clone()), Some(part));
            if !own.is_empty() {
                return (own, Through::Itself);
            }
        }
        for referred in &part.refers {
            let found = self.position(referred).map(|at| self.filling(&(at, referred.column.clone()), None));
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return (found, Through::Referred(referred.table.clone()));
            }
        }
        let bases = self.bases(position, part);
        let found = bases.iter().flat_map(|base| self.filling(&(position, base.clone()), None)).collect();
        (found, Through::Computed(bases.join(", ")))
    }

    /// Returns the columns that a value is computed from: by its expression, or by a trigger that sets it. Returns
    /// none if one of them is the routing key: the value is then different for each key.
    fn bases(&self, position: usize, part: &IndexPart) -> Vec<String> {
        let doings = self.doings.get(&position);
        let words: BTreeSet<String> = part
            .column
            .iter()
            .chain(&part.bases)
            .filter_map(|name| doings?.sources_of(name))
            .flatten()
            .collect();
        let shard_by = self.tables.get(position).map(|table| &table.shard_by);
        if part.bases.iter().chain(&words).any(|name| Some(name) == shard_by) {
            return Vec::new();
        }
        let is_filled = |name: &&String| {
            let column = (position, (*name).clone());
            part.column.as_ref() != Some(name)
                && self.sequences.iter().any(|sequence| sequence.columns.contains(&column))
        };
        let bases: BTreeSet<&String> = part.bases.iter().chain(words.iter().filter(is_filled)).collect();
        bases.into_iter().cloned().collect()
    }

    /// Returns the sequences of a side that fill a column: by defaults, or by functions that name them.
    fn filling(&self, column: &(usize, String), part: Option<&IndexPart>) -> Vec<Filling> {
        let fills = self.sequences.iter().filter(|sequence| sequence.columns.contains(column));
        let mut found: Vec<Filling> = fills.map(Filling::from).collect();
        let Some(table) = self.tables.get(column.0) else { return found };
        let is_open = found.is_empty();
        let drawn = self.drawn.iter().filter(|drawn| drawn.may_fill(column, table, part, is_open));
        found.extend(drawn.map(Filling::from));
        found
    }
}

impl Through {
    fn text(&self) -> Option<String> {
        match self {
            Through::Itself => None,
            Through::Referred(table) => Some(format!("its values are those of {table}")),
            Through::Computed(columns) => Some(format!("its values are computed from {columns}")),
        }
    }
}

/// A sequence that fills a column.
struct Filling {
    oid: String,
    name: String,
    numbers: Numbers,
    /// The function that names it.
    by: Option<String>,
    is_sure: bool,
    /// The numbers after a restart, and the first of them. `None` if unknown.
    restarted: Option<(Numbers, i64)>,
}

/// Returns whether, if shards take turns, TRUNCATE .. RESTART IDENTITY may begin with a number of the other one.
fn restarted(from: &Filling, to: &Filling) -> Option<String> {
    let meets = |one: &Filling, other: &Filling, shard: &str| {
        let (numbers, start) = one.restarted?;
        numbers.meet(other.numbers)?;
        Some(format!(
            "TRUNCATE .. RESTART IDENTITY on the {shard} begins with {start}, and reaches numbers of the other side: ALTER SEQUENCE {} START WITH one of its own.",
            one.name
        ))
    };
    meets(from, to, "source").or_else(|| meets(to, from, "target"))
}

/// Returns how both sequences are apart if each gives out every n-th number, perhaps of a common pool.
fn by_turns(from: &Filling, to: &Filling) -> Option<String> {
    let (step, other) = (from.numbers.increment.unsigned_abs(), to.numbers.increment.unsigned_abs());
    let most = step.max(other);
    (most > 1 && !from.numbers.is_apart_from(to.numbers)).then(|| {
        format!(
            "They alternate. Clients that take {most} numbers with each of a sequence's, as connection pools of ORMs do, get the same ones on both shards. Give each a range of its own, as in docs/guides/identifiers.md: ALTER SEQUENCE {} MINVALUE .. MAXVALUE ..",
            to.name
        )
    })
}

impl From<&ShardSequence> for Filling {
    fn from(sequence: &ShardSequence) -> Filling {
        let ShardSequence { oid, name, numbers, start, .. } = sequence;
        let restarted = Some((sequence.restarted(), *start));
        Filling {
            oid: oid.clone(),
            name: name.clone(),
            numbers: *numbers,
            by: None,
            is_sure: true,
            restarted,
        }
    }
}

impl From<&Drawn> for Filling {
    fn from(drawn: &Drawn) -> Filling {
        let Drawn { oid, name, numbers, by, is_sure, .. } = drawn;
        let by = Some(by.clone());
        let (oid, name) = (oid.clone(), name.clone());
        Filling { oid, name, numbers: *numbers, by, is_sure: *is_sure, restarted: None }
    }
}

fn range(numbers: Numbers) -> String {
    format!("{} to {} by {}", numbers.min, numbers.max, numbers.increment)
}

/// Returns what makes globally unique values, by a column's default.
fn maker(default: &str, is_uuid: bool) -> Option<&'static str> {
    if default.contains("snowflake") {
        return Some("snowflakes");
    }
    let makes_uuids = ["gen_random_uuid(", "uuid_generate_v", "uuidv4(", "uuidv7("];
    (is_uuid || makes_uuids.iter().any(|function| default.contains(function))).then_some("uuids")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::progression::Numbers;

    fn sequence(oid: &str, column: &str, increment: i64, min: i64, max: i64) -> ShardSequence {
        ShardSequence {
            oid: oid.into(),
            name: format!("public.{oid}"),
            numbers: Numbers { increment, min, max, last: Some(min), cycles: false },
            start: min,
            may_read: true,
            may_set: true,
            owner: "owner".into(),
            columns: BTreeSet::from([(0, column.to_owned())]),
            holds: i64::MAX,
            held_by: String::new(),
            is_needed: true,
            in_the_way: None,
            narrow: None,
            sought: BTreeSet::new(),
            in_rows: None,
            is_behind: false,
        }
    }

    fn part(column: &str, is_uuid: bool, default: Option<&str>) -> IndexPart {
        IndexPart {
            text: column.into(),
            column: Some(column.into()),
            type_name: "bigint".into(),
            operator: "OPERATOR(pg_catalog.=)".into(),
            collation: None,
            is_boolean: false,
            is_uuid,
            default: default.map(str::to_owned),
            refers: Vec::new(),
            bases: Vec::new(),
        }
    }

    fn comes(parts: Vec<IndexPart>, source: Vec<ShardSequence>, target: Vec<ShardSequence>) -> Comes {
        let index = UniqueIndex::of_parts(parts);
        let side = |sequences| UniqueSide {
            sequences,
            tables: vec![DrawnTable { name: "items".into(), shard_by: "tenant".into(), maps: Vec::new() }],
            names: vec!["public.items".into()],
            ..UniqueSide::default()
        };
        Fillers { sides: [side(source), side(target)], is_one_place: false }.of(&index, At::Target, &[])
    }

    #[test]
    fn one_part_that_differs_keeps_shards_apart() {
        let (id, code) = (|| part("id", false, None), || part("code", false, None));
        let all = |oid: &str| sequence(oid, "id", 1, 1, i64::MAX);
        let met = comes(vec![code(), id()], vec![all("a")], vec![all("b")]);
        let wanted = |through: Option<&str>| {
            Comes::Met(MetValues {
                from: "public.a".into(),
                to: "public.b".into(),
                number: 2,
                by: None,
                through: through.map(str::to_owned),
                is_sure: true,
            })
        };
        assert_eq!(met, wanted(None));
        // A value that is made of it comes twice as well, unless the key is part of it.
        let of = |bases: &[&str]| IndexPart {
            column: None,
            bases: bases.iter().map(|name| (*name).to_owned()).collect(),
            ..id()
        };
        assert_eq!(
            comes(vec![of(&["id"])], vec![all("a")], vec![all("b")]),
            wanted(Some("its values are computed from id"))
        );
        let with_key = comes(vec![of(&["id", "tenant"])], vec![all("a")], vec![all("b")]);
        assert!(matches!(with_key, Comes::Application(_)), "{with_key:?}");
        let refers = vec![Referred { table: "public.items".into(), column: "id".into() }];
        let met = comes(vec![IndexPart { refers, ..code() }], vec![all("a")], vec![all("b")]);
        assert_eq!(met, wanted(Some("its values are those of public.items")));
        let blocks = (sequence("a", "id", 1, 100, 199), sequence("b", "id", 1, 200, 299));
        let is_apart = |comes: Comes| matches!(comes, Comes::Apart(_));
        assert!(is_apart(comes(vec![code(), id()], vec![blocks.0], vec![blocks.1])));
        let turns =
            comes(vec![id()], vec![sequence("a", "id", 2, 1, 99)], vec![sequence("b", "id", 2, 2, 99)]);
        assert!(
            matches!(&turns, Comes::ApartForNow(_, hint) if hint.contains("take 2 numbers")),
            "{turns:?}"
        );
        assert!(is_apart(comes(vec![part("u", true, None), id()], vec![all("a")], vec![all("b")])));
        let random = Some("(gen_random_uuid())::text");
        assert!(is_apart(comes(vec![part("u", false, random)], vec![], vec![])));
        assert!(is_apart(comes(vec![part("u", false, Some("public.shard_snowflake_id()"))], vec![], vec![])));
    }

    #[test]
    fn what_nobody_knows_comes_from_the_application() {
        let of = |source, target| match comes(vec![part("id", false, None)], source, target) {
            Comes::Application(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(vec![], vec![]), "values of \"id\" (bigint) come from the application");
        let one = || vec![sequence("a", "id", 1, 1, 9)];
        assert!(
            of(one(), vec![])
                .ends_with("come from the application on the target, from sequence public.a on the source")
        );
        assert!(
            of(vec![], one())
                .ends_with("come from the application on the source, from sequence public.a on the target")
        );
    }
}
