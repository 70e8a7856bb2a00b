//! Tables and views in no keyspace that are named by functions which writes to the moving tables call, or read by
//! views over the moving tables: their effects must be the same on both sides. For those that functions name, columns,
//! constraints, rights and the source's rows are checked elsewhere.

use super::fact::{self, Fact};
use super::lacks::is_missing;
use super::rights;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::table_names::TableNames;
use crate::catalog::shard::{self, Shard};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{literal, qualified_as_needed, text_array};
use crate::server::txn::in_one;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::sequences::Places;
use crate::split::sequences::named_rows::{self, Why};
use crate::words::some_of;
use std::collections::{BTreeMap, BTreeSet};

const NAMED_TABLES: &str = include_str!("../../../../../sql/check/named_tables.sql");
/// What affects writes to them, and what affects reads.
const MET: [&str; 3] = ["trigger", "policy", "setting"];
const HIDING: [&str; 2] = ["policy", "setting"];
/// The greatest number of tables that are checked.
const MOST: usize = 500;

type RelationName = (String, String);

struct Relation {
    /// The definition of a view.
    view: Option<Fact>,
    is_materialized: bool,
    is_empty: bool,
    /// It is named by a function's text, or by an object that a text names.
    is_named: bool,
    /// It is read by views over the moving tables.
    is_shown: bool,
}

impl Relation {
    fn why(&self) -> &'static str {
        if self.is_named {
            "is named by functions that writes to the moving tables call"
        } else {
            "is read by views over the moving tables"
        }
    }

    /// Whether a fact matters besides a table's rows.
    fn is_met(&self, fact: &Fact) -> bool {
        if self.is_named { is_met(fact) } else { fact.is(&HIDING) }
    }
}

/// The relations by schema and name.
type NamedRelations = BTreeMap<RelationName, Relation>;

/// Runs the check. `known`: what other parts have found.
pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    words: &BTreeSet<String>,
    known: &[Finding],
) -> Result<Vec<Finding>> {
    let here = find(source, &plan.source, words)?;
    if here.is_empty() {
        return Ok(Vec::new());
    }
    let own = find(target, &plan.target, words)?;
    let (source, target) = (&mut source.session, &mut target.session);
    let both = here.iter().filter_map(|(at, relation)| {
        let there = there_of(plan, at);
        own.get(&there).map(|other| (at, relation, there, other))
    });
    let mut found: Vec<(&RelationName, Remark, String)> = Vec::new();
    let (mut tables, mut empty) = ((Vec::new(), Vec::new()), Vec::new());
    for (at, relation, there, other) in both.take(MOST) {
        match (&relation.view, &other.view) {
            (None, None) => {
                if relation.is_empty && !other.is_empty {
                    empty.push((at, there.clone()));
                }
                tables.0.push((at, relation));
                tables.1.push(there);
            }
            (Some(view), Some(other)) if view.says_as(other) => {}
            (Some(_), _) => found.push((at, Remark::Lacking, "what it shows".to_owned())),
            // Another kind of object has the name, perhaps with the same rows.
            (None, Some(_)) => {}
        }
    }
    found.extend(filled(plan, source, target, &empty)?);
    let (names, places) = &tables;
    let names_alone = names.iter().map(|(at, _)| *at);
    let facts = (fact::of(source, &lists(names_alone))?, fact::of(target, &lists(places.iter()))?);
    for (position, (at, relation)) in names.iter().enumerate() {
        let of_table = |fact: &&Fact| fact.position == position && relation.is_met(fact);
        let lacking = facts.0.iter().filter(of_table).filter_map(|fact| lacking(fact, &facts.1));
        found.extend(lacking.map(|text| (*at, Remark::Lacking, text)));
        let alone = facts.1.iter().filter(of_table).filter(|fact| is_missing(fact, &facts.0));
        found.extend(alone.map(|fact| (*at, Remark::Alone, fact.text())));
    }
    let why = |at: &RelationName| here.get(at).map_or("", Relation::why);
    let mut findings: Vec<Finding> =
        found.into_iter().map(|(at, remark, text)| finding(plan, at, why(at), remark, &text)).collect();
    findings.extend(shown(plan, source, target, &here, known)?);
    findings.extend(stale(plan, &here));
    Ok(findings)
}

/// Checks rows and read rights of relations that views over the moving tables read.
fn shown(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    here: &NamedRelations,
    known: &[Finding],
) -> Result<Vec<Finding>> {
    let check = Remark::NamedTables.check_name();
    let is_known = |at: &RelationName| {
        let object = name(at);
        known.iter().any(|found| found.name == check && found.object.as_deref() == Some(&object))
    };
    let tables =
        here.iter().filter(|(at, relation)| relation.is_shown && relation.view.is_none() && !is_known(at));
    let tables: Vec<RelationName> = tables.map(|(at, _)| at.clone()).collect();
    let mut findings = named_rows::check(plan, source, target, &tables, Why::Shown)?;
    let missing = rights::of_places(plan, source, target, &tables)?;
    findings.extend(missing.into_iter().map(|(at, text)| {
        let object = name(&at);
        let detail =
            format!("table {object}, which views over the moving tables read: the target lacks {text}");
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &format!("{object}: {text}"), detail)
    }));
    Ok(findings)
}

/// Finds materialized views between a view over the moving tables and its rows, which are those of the last refresh.
fn stale(plan: &Plan, here: &NamedRelations) -> Option<Finding> {
    let views = here.iter().filter(|(_, relation)| relation.is_shown && relation.is_materialized);
    let names: Vec<String> = views.map(|(at, _)| name(at)).collect();
    let text = format!("views over the tables read materialized views: {}", some_of(&names));
    let hint = format!(
        "REFRESH MATERIALIZED VIEW on shard {} before the cutover, if the source's were refreshed later.",
        literal(&plan.target.shard_key)
    );
    (!names.is_empty()).then(|| Finding::note("target: materialized views that views read", text, &hint))
}

fn there_of(plan: &Plan, (schema, name): &RelationName) -> RelationName {
    (Places::of(plan).there(schema), name.clone())
}

/// Returns relations of which only the target has rows: they are read like those that have rows on the source, with
/// the sides exchanged.
fn filled<'a>(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    empty: &[(&'a RelationName, RelationName)],
) -> Result<Vec<(&'a RelationName, Remark, String)>> {
    let [on_source, on_target] = plan.trusted.clone();
    let turned = Plan {
        source: plan.target.clone(),
        target: plan.source.clone(),
        trusted: [on_target, on_source],
        ..plan.clone()
    };
    let places: Vec<RelationName> = empty.iter().map(|(_, there)| there.clone()).collect();
    let rows = named_rows::check(&turned, target, source, &places, Why::Named(&BTreeSet::new()))?;
    let has_rows =
        |there: &RelationName| rows.iter().any(|found| found.object.as_deref() == Some(&name(there)));
    let alone = empty.iter().filter(|(_, there)| has_rows(there));
    Ok(alone.map(|(at, _)| (*at, Remark::Alone, "rows".to_owned())).collect())
}

fn name((schema, name): &RelationName) -> String {
    qualified_as_needed(schema, name)
}

fn finding(plan: &Plan, at: &RelationName, why: &str, remark: Remark, text: &str) -> Finding {
    let object = name(at);
    let what = if remark == Remark::Alone { "the target alone has" } else { "the target lacks" };
    let detail = format!("{object}, which {why}: {what} {text}");
    Finding::remark_of(plan.reverse_of, remark, &format!("{object}: {text}"), detail)
}

/// Whether it is a unique index without a constraint, which ON CONFLICT may use, or something that affects statements.
fn is_met(fact: &Fact) -> bool {
    let is_index = || fact.index.as_ref().is_some_and(|index| index.constraint.is_none());
    fact.is(&MET) || fact.is(&["unique key"]) && is_index()
}

fn lacking(fact: &Fact, there: &[Fact]) -> Option<String> {
    let is_same =
        || fact.is(&["setting"]) || there.iter().any(|other| other.is_beside(fact) && fact.says_as(other));
    match is_missing(fact, there) {
        true => Some(fact.text()),
        false if !is_same() => Some(format!("{} as it is on the source", fact.text())),
        false => None,
    }
}

fn find(side: &mut ObservedSide, shard: &Shard, words: &BTreeSet<String>) -> Result<NamedRelations> {
    let (session, lists) = (&mut side.session, side.names.lists());
    let of_others = text_array(&in_one(|| shard::schemas_of_others(shard)));
    let words: Vec<String> = words.iter().cloned().collect();
    let words = text_array(&words);
    let lists = [&lists[0], &lists[1], &words, &of_others];
    let rows = catalogs::ask(session, NAMED_TABLES, &catalogs::given(&lists))?.rows;
    let version = session.server_version();
    let one = |row: Vec<Option<String>>| {
        let [schema, name, kind, shows, is_empty, is_named, is_shown] = <[_; 7]>::try_from(row).ok()?;
        let (schema, name) = (schema?, name?);
        let view = shows.map(|shows| Fact::of_view(&name, &shows, &schema, version));
        let is = |cell: Option<String>| cell.as_deref() == Some("t");
        let relation = Relation {
            view,
            is_materialized: kind.as_deref() == Some("m"),
            is_empty: is(is_empty),
            is_named: is(is_named),
            is_shown: is(is_shown),
        };
        Some(((schema, name), relation))
    };
    Ok(rows.into_iter().filter_map(one).collect())
}

fn lists<'a>(tables: impl Iterator<Item = &'a RelationName>) -> [String; 2] {
    tables.cloned().collect::<TableNames>().lists()
}
