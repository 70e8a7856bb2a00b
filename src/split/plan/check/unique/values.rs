//! The moving values, tried against the target's rows: all of them if that is quick, else some. They are tried in
//! batches, each one query of the target by the key's own equality; only what the check reads anyway is locked.

use super::index::{NAME, UniqueIndex};
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::plain;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::{Plan, PlannedTable};
use crate::catalog::{in_use, keyspace, routing};
use crate::clean;
use crate::remote::quote::{array_of, ident};
use crate::remote::{Connection, RemoteError};
use crate::server::txn::in_one;
use crate::split::finding::Finding;
use crate::split::table::computed;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The greatest number of values of one key that are tried.
const MOST: usize = 100_000;
const BATCH: usize = 1_000;
/// Of a larger table some blocks are read: 128 MB.
const MOST_BLOCKS: i64 = 16_384;
/// The limit for all of it.
const LONGEST: Duration = Duration::from_secs(20);
/// The length up to which texts are shown.
const SHOWN: usize = 60;

/// What was tried of a table's rows, and the result.
struct Tried {
    values: usize,
    is_all: bool,
    met: Option<MetRow>,
}

/// A row of the target that has a value already.
struct MetRow {
    values: String,
    /// The row's key. `None` if it has none.
    owner: Option<String>,
}

pub struct UniqueValues<'a> {
    plan: &'a Plan,
    until: Instant,
    /// Tables of the target that have a row.
    filled: BTreeSet<String>,
}

impl<'a> UniqueValues<'a> {
    pub fn begin(
        plan: &'a Plan,
        indexes: &[UniqueIndex],
        target: &mut Connection,
    ) -> Result<UniqueValues<'a>> {
        let tables: BTreeSet<&str> = indexes.iter().map(|index| index.table.as_str()).collect();
        let tables: Vec<&str> = tables.into_iter().collect();
        let queries: Vec<String> = tables
            .iter()
            .enumerate()
            .map(|(number, table)| format!("SELECT {number} WHERE EXISTS (SELECT 1 FROM {table})"))
            .collect();
        let mut filled = BTreeSet::new();
        if !queries.is_empty() {
            for row in target.run(&queries.join(" UNION ALL "))?.rows {
                let number = row.first().and_then(|cell| cell.as_deref()?.parse::<usize>().ok());
                filled.extend(number.and_then(|number| tables.get(number)).map(|table| (*table).to_owned()));
            }
        }
        Ok(UniqueValues { plan, until: Instant::now() + LONGEST, filled })
    }

    /// Returns the finding for one key; `is_on_both`: the source has it as well, so its expressions were checked
    /// there.
    pub fn try_all(
        &mut self,
        index: &UniqueIndex,
        is_on_both: bool,
        source: &mut ObservedSide,
        target: &mut ObservedSide,
    ) -> Result<Option<Finding>> {
        let (Some(policy), Some(from), Some(to)) = (
            self.plan.tables.get(index.position),
            source.observation.tables.get(index.position),
            target.observation.tables.get(index.position),
        ) else {
            return Ok(None);
        };
        if !self.filled.contains(&index.table) {
            return Ok(Some(Finding::new(
                NAME,
                true,
                format!("{}: the target has no rows", index.text()),
                "",
            )));
        }
        if let Some(why) = untried(index, policy, is_on_both) {
            let hint = "A value that is on both sides stops the copy (23505).";
            let detail = format!("{}: its values are not compared with the target's: {why}", index.text());
            return Ok(Some(Finding::note(NAME, detail, hint)));
        }
        let (Some(by), Some(there)) = (from.column(&policy.shard_by), to.column(&policy.shard_by)) else {
            return Ok(None);
        };
        let tried = self.compare(index, &mut source.session, &mut target.session, from, [by, there]);
        match tried {
            Ok(tried) => Ok(Some(self.finding(index, policy, target.session.shard(), &tried))),
            // An error of a type's own function does not end the check.
            Err(error) if error.is_verdict() => {
                let detail = format!("{}: its values cannot be compared: {}", index.text(), error.message);
                Ok(Some(Finding::note(NAME, detail, "A value that is on both sides stops the copy (23505).")))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn compare(
        &self,
        index: &UniqueIndex,
        source: &mut Connection,
        target: &mut Connection,
        from: &TableShape,
        [by, there]: [&Column; 2],
    ) -> std::result::Result<Tried, RemoteError> {
        let (functions, moves) = self.plan.scope.dry_predicate(by, "t");
        let (functions_there, own) = self.plan.scope.dry_predicate(there, "t");
        let blocks: i64 = from.leaves().iter().map(|leaf| leaf.blocks).sum();
        let read = reading(index, from, &moves, blocks);
        let look = looking(index, there, &own);
        source.undone(|source| {
            source.run(&functions)?;
            source.run(&format!("DECLARE moving NO SCROLL CURSOR FOR {read}"))?;
            target.undone(|target| {
                target.run(&functions_there)?;
                let mut tried = Tried { values: 0, is_all: blocks <= MOST_BLOCKS, met: None };
                loop {
                    let rows = source.run_unbounded(&format!("FETCH {BATCH} FROM moving"))?.rows;
                    let is_last = rows.len() < BATCH;
                    tried.met = met(index, target, &look, &rows)?;
                    tried.values += rows.len();
                    if is_last || tried.met.is_some() {
                        return Ok(tried);
                    }
                    if tried.values >= MOST || Instant::now() > self.until {
                        tried.is_all = false;
                        return Ok(tried);
                    }
                }
            })
        })
    }

    fn finding(&self, index: &UniqueIndex, policy: &PlannedTable, shard: &str, tried: &Tried) -> Finding {
        let Some(met) = &tried.met else {
            let how_many = match (tried.is_all, tried.values) {
                (true, values) => format!("none of the {values} values that move"),
                (false, values) => format!("none of {values} values that move, a sample,"),
            };
            return Finding::new(NAME, true, format!("{}: {how_many} is on the target", index.text()), "");
        };
        let whose = match &met.owner {
            Some(owner) => format!("a row of key \"{owner}\""),
            None => "a row without a key".to_owned(),
        };
        let detail = format!(
            "{}: {} of the moving keys collides with {whose} on shard \"{shard}\"",
            index.text(),
            met.values
        );
        match met.owner.as_deref().and_then(|owner| self.other_split(owner)) {
            // That split's rows leave, or are brought back, and are waited for.
            Some(other) => {
                let hint = format!("Split {other} moves that row. This one waits for it.");
                Finding::note(NAME, detail, &hint)
            }
            None => {
                let hint = format!(
                    "Make the key unique across shards, for example by adding \"{}\" to it, or change one of the two rows.",
                    policy.shard_by
                );
                Finding::new(NAME, false, detail, &hint)
            }
        }
    }

    /// Returns another active split that moves the key.
    fn other_split(&self, owner: &str) -> Option<i64> {
        let plan = self.plan;
        let found = in_one(|| {
            let keyspace = keyspace::find(&plan.keyspace).ok()?;
            let entry = routing::entry_of(&keyspace, &keyspace.key_type().canonical(owner))?;
            in_use::split_of_keys(&plan.keyspace, &[entry])
        });
        found.map(|(split, _)| split).filter(|split| *split != plan.id)
    }
}

/// Returns why the values of a key are not tried.
fn untried(index: &UniqueIndex, policy: &PlannedTable, is_on_both: bool) -> Option<String> {
    let mut columns = index.parts.iter().filter_map(|part| part.column.as_ref());
    if let Some(column) = columns.find(|column| computed::is_own(policy, column)) {
        return Some(format!("column \"{column}\" is computed"));
    }
    if index.is_of_partition {
        return Some("it is of one partition alone".to_owned());
    }
    let expressions: Vec<&String> = index
        .parts
        .iter()
        .filter(|part| part.column.is_none())
        .map(|part| &part.text)
        .chain(&index.predicate)
        .collect();
    if expressions.is_empty() {
        return None;
    }
    // The source would evaluate a text of the target.
    if !is_on_both {
        return Some("the source has no such index".to_owned());
    }
    let is_plain = |text: &&&String| {
        plain::qualified(text).is_some_and(|names| names.is_empty()) && !plain::has_query(text)
    };
    let other = expressions.iter().find(|text| !is_plain(text));
    other.map(|text| format!("what {text} calls is not known to be safe"))
}

/// Returns a query for the moving values, as text.
fn reading(index: &UniqueIndex, from: &TableShape, moves: &str, blocks: i64) -> String {
    let parts: Vec<String> = index.parts.iter().map(|part| format!("({})", part.text)).collect();
    let values: Vec<String> = parts.iter().map(|part| format!("{part}::text")).collect();
    let known =
        parts.iter().filter(|_| !index.are_nulls_equal).map(|part| format!(" AND {part} IS NOT NULL"));
    let known: String = known.chain(index.predicate.iter().map(|text| format!(" AND ({text})"))).collect();
    let sample = if blocks > MOST_BLOCKS {
        format!(" TABLESAMPLE SYSTEM ({:.4})", 100.0 * MOST_BLOCKS as f64 / blocks as f64)
    } else {
        String::new()
    };
    format!("SELECT {} FROM {} t{sample} WHERE ({moves}){known}", values.join(", "), from.name)
}

/// Returns a query for those of some values that rows of other keys have.
fn looking(index: &UniqueIndex, there: &Column, own: &str) -> String {
    let named = |at: usize| format!("k{at}");
    let arrays: Vec<String> = (0..index.parts.len()).map(|at| format!("${}::text[]", at + 1)).collect();
    let names: Vec<String> = (0..index.parts.len()).map(named).collect();
    let parts: Vec<String> = index
        .parts
        .iter()
        .enumerate()
        .map(|(at, part)| format!("({}) AS {}", part.text, named(at)))
        .collect();
    let same: Vec<String> = index
        .parts
        .iter()
        .enumerate()
        .map(|(at, part)| {
            let collation =
                part.collation.as_ref().map_or_else(String::new, |name| format!(" COLLATE {name}"));
            let name = named(at);
            let is_same = format!("r.{name} {} v.{name}::{}{collation}", part.operator, part.type_name);
            if index.are_nulls_equal {
                format!("({is_same} OR r.{name} IS NULL AND v.{name} IS NULL)")
            } else {
                is_same
            }
        })
        .collect();
    let shown: Vec<String> = names.iter().map(|name| format!("v.{name}")).collect();
    let predicate = index.predicate.as_ref().map_or_else(String::new, |text| format!(" AND ({text})"));
    let by = ident(&there.name);
    format!(
        "SELECT r.owner, {} FROM unnest({}) AS v ({})
           JOIN (SELECT t.{by}::text AS owner, {} FROM {} t WHERE ({own}) IS NOT TRUE{predicate}) r ON {} LIMIT 1",
        shown.join(", "),
        arrays.join(", "),
        names.join(", "),
        parts.join(", "),
        index.table,
        same.join(" AND ")
    )
}

fn met(
    index: &UniqueIndex,
    target: &mut Connection,
    look: &str,
    rows: &[Vec<Option<String>>],
) -> std::result::Result<Option<MetRow>, RemoteError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let column = |at: usize| array_of(rows.iter().map(|row| row.get(at).and_then(Option::as_deref)));
    let arrays: Vec<String> = (0..index.parts.len()).map(column).collect();
    let arrays: Vec<Option<&str>> = arrays.iter().map(|array| Some(array.as_str())).collect();
    let found = target.query(look, &arrays)?.rows;
    Ok(found.first().map(|row| MetRow {
        owner: row.first().cloned().flatten().map(|owner| clean::more(&owner)),
        values: values(row.get(1..).unwrap_or_default()),
    }))
}

/// Returns values as they are shown.
fn values(cells: &[Option<String>]) -> String {
    let shown = |cell: &Option<String>| {
        let text = cell.as_deref().unwrap_or("NULL");
        let short: String = text.chars().take(SHOWN).collect();
        if short.len() < text.len() { format!("{short}...") } else { short }
    };
    let all: Vec<String> = cells.iter().map(shown).collect();
    format!("value ({})", all.join(", "))
}
