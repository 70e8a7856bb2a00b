//! Moving rows with numbers beyond the sequence that fills their column, as imports and fixtures create them: the
//! source's sequence reaches such a number some day, the target's perhaps sooner. And numbers that only the target's
//! sequence gives out: of a range of its own, which no split raises, or beyond the end of the source's.

use super::draw::Draw;
use super::survey::{FilledColumn, NumbersToCome, Survey};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::{Column, Observation};
use crate::catalog::split::{Plan, PlannedTable};
use crate::guc;
use crate::numbers::introspect;
use crate::numbers::progression::Numbers;
use crate::remote::Connection;
use crate::remote::quote::{ident, ident_as_needed, literal, text_array};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::table::computed;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The limit for all tables. With an index that begins with the key or the number, one row is read of each.
const LONGEST: Duration = Duration::from_secs(5);
const NUMERIC: [&str; 4] = ["smallint", "integer", "bigint", "numeric"];
const NUMBERS: &str = include_str!("../../../sql/sequences/numbers.sql");

/// A column of the source that is checked.
struct LookedColumn<'a> {
    policy: &'a PlannedTable,
    column: &'a Column,
    table: &'a str,
    moves: String,
    by: NumberSource<'a>,
}

/// The sequence whose future numbers its rows may have.
enum NumberSource<'a> {
    Source(&'a Draw),
    Target(&'a FilledColumn, NumbersToCome),
}

pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    found: &Survey,
) -> Result<Vec<Finding>> {
    let ObservedSide { session: source, observation: on_source, .. } = source;
    let ObservedSide { session: target, observation: on_target, .. } = target;
    let of_source =
        found.of_columns[0].iter().filter_map(|draw| of_numbers(plan, on_source, draw)).collect::<Vec<_>>();
    let alone = of_target_alone(target, found)?;
    let of_target = found.fills.iter().filter_map(|fill| {
        let to_come = *found.to_come.get(&fill.to.oid).or_else(|| alone.get(&fill.to.oid))?;
        let is_covered = to_come.is_as_of_source && of_source.iter().any(|looked| looked.is_of(fill));
        if is_covered || !is_told_apart(plan, on_target, fill) {
            return None;
        }
        LookedColumn::of(plan, on_source, fill.table, &fill.column, NumberSource::Target(fill, to_come))
    });
    let of_target: Vec<LookedColumn<'_>> = of_target.collect();
    let looked: Vec<&LookedColumn<'_>> = of_source.iter().chain(&of_target).collect();
    let queries: Vec<String> =
        looked.iter().enumerate().map(|(number, looked)| looked.query(number)).collect();
    let Some(functions) = on_source
        .tables
        .iter()
        .zip(&plan.tables)
        .find_map(|(shape, policy)| Some(plan.scope.dry_predicate(shape.column(&policy.shard_by)?, "t").0))
        .filter(|_| !queries.is_empty())
    else {
        return Ok(Vec::new());
    };
    let Some(rows) = source.undone_within(LONGEST, &functions, &queries.join(" UNION ALL "))? else {
        let text = format!(
            "it was not found in {} ms whether rows have numbers beyond their sequences",
            LONGEST.as_millis()
        );
        return Ok(vec![Finding::note(
            Remark::NumbersBeyond.check_name(),
            text,
            "An index that begins with the number makes it faster.",
        )]);
    };
    // If the source's sequence is reported, the target's is not reported again.
    let mut known = BTreeSet::new();
    let finding = |row: &Vec<Option<String>>| {
        let [Some(number), Some(last), Some(greatest)] = row.as_slice() else { return None };
        let looked = looked.get(number.parse::<usize>().ok()?)?;
        known.insert(looked.object()).then(|| looked.finding(plan, last, greatest))
    };
    Ok(rows.rows.iter().filter_map(finding).collect())
}

/// Returns columns whose numbers are copied as they are, into an index that permits each once.
fn of_numbers<'a>(plan: &'a Plan, on_source: &'a Observation, draw: &'a Draw) -> Option<LookedColumn<'a>> {
    let (table, name) = (draw.table?, draw.column.as_ref()?);
    let is_mapped = computed::is_own(plan.tables.get(table)?, name);
    let is_looked_at = draw.in_unique && draw.is_drawn() && !draw.sequence.cycles && !is_mapped;
    is_looked_at.then(|| LookedColumn::of(plan, on_source, table, name, NumberSource::Source(draw))).flatten()
}

/// Whether a key contains the column: a function's number may fill any column, but in a key it must not come twice.
fn is_told_apart(plan: &Plan, on_target: &Observation, fill: &FilledColumn) -> bool {
    let name = || -> Option<bool> {
        let maps = &plan.tables.get(fill.table)?.maps;
        let is_it = |column: &String| {
            super::pair::plainly_filled(maps, column).as_deref() == Some(fill.column.as_str())
        };
        let shape = on_target.tables.get(fill.table)?;
        let promises = shape.promises.iter().flatten().flat_map(|promise| &promise.columns);
        Some(shape.key().iter().chain(promises).any(is_it))
    };
    !fill.by_function || name().unwrap_or(false)
}

/// Returns the positions of sequences of the target that no sequence of the source is known for.
fn of_target_alone(target: &mut Connection, found: &Survey) -> Result<BTreeMap<String, NumbersToCome>> {
    let is_paired = |fill: &&FilledColumn| found.pairs.iter().any(|pair| pair.to.oid == fill.to.oid);
    let left: Vec<&FilledColumn> =
        found.fills.iter().filter(|fill| !is_paired(fill) && !fill.by_function).collect();
    if left.is_empty() {
        return Ok(BTreeMap::new());
    }
    let oids: BTreeSet<String> = left.iter().map(|fill| fill.to.oid.clone()).collect();
    let oids = text_array(&oids.into_iter().collect::<Vec<_>>());
    let mut numbers: BTreeMap<String, Numbers> = BTreeMap::new();
    for row in catalogs::ask(target, NUMBERS, &[Some(&oids)])?.rows {
        let may_read = row.get(6).is_some_and(|cell| cell.as_deref() == Some("t"));
        let read = row.first().cloned().flatten().zip(row.get(1..6).and_then(Numbers::read));
        numbers.extend(read.filter(|_| may_read));
    }
    let names: BTreeMap<&str, &str> =
        left.iter().map(|fill| (fill.to.oid.as_str(), fill.to.name.as_str())).collect();
    let new = numbers.iter_mut();
    let new = new.filter_map(|(oid, numbers)| Some((oid.as_str(), *names.get(oid.as_str())?, numbers)));
    introspect::begin(target, new)?;
    let to_come = |(oid, numbers): (String, Numbers)| {
        let next = numbers.like().saturating_add(numbers.increment);
        let is_up = numbers.increment > 0;
        let range = if is_up { [next, numbers.max] } else { [numbers.min, next] };
        (oid, NumbersToCome { range, is_up, is_as_of_source: false, of_others: None })
    };
    Ok(numbers.into_iter().map(to_come).collect())
}

impl<'a> LookedColumn<'a> {
    fn of(
        plan: &'a Plan,
        on_source: &'a Observation,
        table: usize,
        name: &str,
        by: NumberSource<'a>,
    ) -> Option<LookedColumn<'a>> {
        let (policy, shape) = (plan.tables.get(table)?, on_source.tables.get(table)?);
        let column = shape.column(name).filter(|column| NUMERIC.contains(&column.type_name.as_str()))?;
        let (_, moves) = plan.scope.dry_predicate(shape.column(&policy.shard_by)?, "t");
        Some(LookedColumn { policy, column, table: &shape.name, moves, by })
    }

    fn is_of(&self, fill: &FilledColumn) -> bool {
        match &self.by {
            NumberSource::Source(draw) => draw.table == Some(fill.table) && self.column.name == fill.column,
            NumberSource::Target(other, _) => (other.table, &other.column) == (fill.table, &fill.column),
        }
    }

    /// Returns a query for the number itself, the position of the sequence, and the last number in a row.
    fn query(&self, number: usize) -> String {
        let (table, column, moves) = (self.table, ident(&self.column.name), &self.moves);
        match &self.by {
            // The target's sequence begins a margin further on.
            NumberSource::Source(draw) => {
                let (sequence, margin) = (&draw.sequence.name, guc::sequence_margin());
                format!(
                    "(SELECT {number}, s.last_value, t.{column}::pg_catalog.text
                        FROM {sequence} s JOIN pg_catalog.pg_sequence q ON q.seqrelid = {}::pg_catalog.regclass AND q.seqincrement > 0
                        JOIN {table} t ON t.{column} > s.last_value::pg_catalog.numeric + {margin} * q.seqincrement
                                      AND t.{column} > s.last_value AND t.{column} <= q.seqmax
                       WHERE {moves} ORDER BY t.{column} DESC LIMIT 1)",
                    literal(sequence)
                )
            }
            NumberSource::Target(_, NumbersToCome { range: [first, last], is_up, .. }) => {
                let (next, order) = if *is_up { (first, "DESC") } else { (last, "ASC") };
                format!(
                    "(SELECT {number}, '{next}'::pg_catalog.int8, t.{column}::pg_catalog.text FROM {table} t
                       WHERE t.{column} >= '{first}'::pg_catalog.int8 AND t.{column} <= '{last}'::pg_catalog.int8 AND {moves} ORDER BY t.{column} {order} LIMIT 1)"
                )
            }
        }
    }

    fn object(&self) -> String {
        format!("{}.{}", self.policy.table_name, ident_as_needed(&self.column.name))
    }

    fn finding(&self, plan: &Plan, at: &str, greatest: &str) -> Finding {
        let (sequence, side, then) = match &self.by {
            NumberSource::Source(draw) => {
                (&draw.sequence.name, "source", format!("at {at}, has not given out yet"))
            }
            NumberSource::Target(fill, _) => {
                (&fill.to.name, "target", format!("which continues with {at}, has not given out yet"))
            }
        };
        let ends = match &self.by {
            // It must not be raised among the numbers of another one.
            NumberSource::Target(_, NumbersToCome { of_others: Some(first), .. })
                if greatest.parse::<i128>().is_ok_and(|greatest| greatest >= i128::from(*first)) =>
            {
                format!("ALTER SEQUENCE {sequence} MAXVALUE {}", first.saturating_sub(1))
            }
            NumberSource::Source(_) | NumberSource::Target(..) => {
                format!("SELECT setval({}, {greatest})", literal(sequence))
            }
        };
        let detail = format!(
            "{}: column \"{}\": a row that moves has {greatest}, which sequence {sequence} of the {side}, {then}; {ends} on the {side} corrects it",
            self.policy.table_name, self.column.name
        );
        Finding::remark_of(plan.reverse_of, Remark::NumbersBeyond, &self.object(), detail)
    }
}
