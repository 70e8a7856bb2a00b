//! How the values of a key come about.

use super::drawn::Drawn;
use super::index::{Index, Part};
use crate::numbers::look::Sequence;
use crate::numbers::progression::Numbers;

/// The sequences of both sides' tables.
pub struct Fillers {
    pub source: Vec<Sequence>,
    pub target: Vec<Sequence>,
    /// What functions of defaults and triggers draw from, of the source and of the target.
    pub drawn: [Vec<Drawn>; 2],
    /// Whether both sides are one database: what has the same number there is one sequence.
    pub is_one_place: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Comes {
    /// A number that sequences of both sides may give out; `by`: the function that draws, of which nothing else is known.
    Met { from: String, to: String, number: i64, by: Option<String> },
    /// Both sides make others, and how.
    Apart(String),
    /// Nobody here knows.
    Application(String),
}

impl Fillers {
    /// One part that is never the same on both sides will do.
    pub fn of(&self, index: &Index, on_source: &[Index]) -> Comes {
        let mut met = None;
        let mut application = Vec::new();
        for (at, part) in index.parts.iter().enumerate() {
            let there =
                on_source.iter().find(|other| other.is_like(index)).and_then(|other| other.parts.get(at));
            match self.of_part(index.position, part, there.unwrap_or(part)) {
                found @ Comes::Met { .. } => met = met.or(Some(found)),
                Comes::Apart(what) => return Comes::Apart(what),
                Comes::Application(what) => application.push(what),
            }
        }
        met.unwrap_or_else(|| Comes::Application(application.join(", ")))
    }

    /// The sequences of a side that fill a column: by defaults of its own, or else by functions that name them.
    fn filling(&self, side: usize, column: &(usize, String), part: &Part) -> Vec<Filling> {
        let of_columns = if side == 0 { &self.source } else { &self.target };
        let fills = of_columns.iter().filter(|sequence| sequence.columns.contains(column));
        let own: Vec<Filling> = fills.map(Filling::from).collect();
        if !own.is_empty() {
            return own;
        }
        self.drawn[side].iter().filter(|drawn| drawn.may_fill(column, part)).map(Filling::from).collect()
    }

    fn of_part(&self, position: usize, part: &Part, there: &Part) -> Comes {
        let Some(name) = &part.column else {
            return Comes::Application(format!("values of {} come from the application", part.text));
        };
        let column = (position, name.clone());
        let (from, to) = (self.filling(0, &column, there), self.filling(1, &column, part));
        if let (Some(first), Some(other)) = (from.first(), to.first()) {
            let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (from, to)));
            let mut met = pairs.filter_map(|(from, to)| {
                let is_one = self.is_one_place && from.oid == to.oid;
                let number = from.numbers.meet(to.numbers).filter(|_| !is_one)?;
                let by = from.by.clone().or_else(|| to.by.clone());
                Some(Comes::Met { from: from.name.clone(), to: to.name.clone(), number, by })
            });
            return met.next().unwrap_or_else(|| {
                Comes::Apart(format!(
                    "values of \"{name}\" come from sequences, which give out no number twice ({}, {})",
                    range(first.numbers),
                    range(other.numbers)
                ))
            });
        }
        let made = |part: &Part| part.default.as_deref().and_then(|default| maker(default, part.is_uuid));
        match (made(there), made(part)) {
            (Some(_), Some(how)) => Comes::Apart(format!("values of \"{name}\" are {how}")),
            _ if part.is_uuid && from.is_empty() && to.is_empty() => {
                Comes::Apart(format!("values of \"{name}\" are uuids of the application"))
            }
            _ => match &part.refers {
                Some(table) => {
                    Comes::Apart(format!("values of \"{name}\" are those of {table}, to which it refers"))
                }
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
}

/// A sequence that fills a column.
struct Filling {
    oid: String,
    name: String,
    numbers: Numbers,
    /// The function that names it.
    by: Option<String>,
}

impl From<&Sequence> for Filling {
    fn from(sequence: &Sequence) -> Filling {
        let Sequence { oid, name, numbers, .. } = sequence;
        Filling { oid: oid.clone(), name: name.clone(), numbers: *numbers, by: None }
    }
}

impl From<&Drawn> for Filling {
    fn from(drawn: &Drawn) -> Filling {
        let Drawn { oid, name, numbers, by, .. } = drawn;
        Filling { oid: oid.clone(), name: name.clone(), numbers: *numbers, by: Some(by.clone()) }
    }
}

fn range(numbers: Numbers) -> String {
    format!("{} to {} by {}", numbers.min, numbers.max, numbers.increment)
}

/// What makes values that are nowhere else, by a column's default.
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
    use std::collections::BTreeSet;

    fn sequence(oid: &str, column: &str, increment: i64, min: i64, max: i64) -> Sequence {
        Sequence {
            oid: oid.into(),
            name: format!("public.{oid}"),
            numbers: Numbers { increment, min, max, last: Some(min), cycles: false },
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

    fn part(column: &str, is_uuid: bool, default: Option<&str>) -> Part {
        Part {
            text: column.into(),
            column: Some(column.into()),
            type_name: "bigint".into(),
            operator: "OPERATOR(pg_catalog.=)".into(),
            collation: None,
            is_boolean: false,
            is_uuid,
            default: default.map(str::to_owned),
            refers: None,
        }
    }

    fn comes(parts: Vec<Part>, source: Vec<Sequence>, target: Vec<Sequence>) -> Comes {
        let index = Index::of_parts(parts);
        Fillers { source, target, drawn: Default::default(), is_one_place: false }.of(&index, &[])
    }

    #[test]
    fn one_part_that_differs_keeps_shards_apart() {
        let (id, code) = (|| part("id", false, None), || part("code", false, None));
        let all = |oid: &str| sequence(oid, "id", 1, 1, i64::MAX);
        let met = comes(vec![code(), id()], vec![all("a")], vec![all("b")]);
        assert_eq!(met, Comes::Met { from: "public.a".into(), to: "public.b".into(), number: 2, by: None });
        let blocks = (sequence("a", "id", 1, 100, 199), sequence("b", "id", 1, 200, 299));
        let is_apart = |comes: Comes| matches!(comes, Comes::Apart(_));
        assert!(is_apart(comes(vec![code(), id()], vec![blocks.0], vec![blocks.1])));
        assert!(is_apart(comes(
            vec![id()],
            vec![sequence("a", "id", 2, 1, 99)],
            vec![sequence("b", "id", 2, 2, 99)]
        )));
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
