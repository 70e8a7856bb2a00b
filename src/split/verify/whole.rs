//! Comparison of a small table at once: the number of rows, and the sum of their checksums. If both sides agree, every
//! row has its equal; if not, its rows are compared.

use super::rows::{self, CHECKSUM, LENGTH};
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::progress::TableProgress;
use crate::catalog::split::Plan;
use crate::guc;
use crate::keys::scope::Scope;
use crate::remote::quote::array_literal;
use crate::remote::result::Rows;
use crate::remote::{Connection, number};
use crate::split::engine::scope_size;
use crate::split::engine::session_pair::{PairAnswers, SessionPair, ask_both};
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;

/// The greatest number of bytes of a table that are read at once, unless the rate limit permits less in a step.
const SMALL: i64 = 16 << 20;
/// The greatest number of its rows, if the table itself is bigger.
const FEW_ROWS: i64 = 100_000;
/// The greatest number of partitions that are each asked for a plan.
const FEW_LEAVES: usize = 8;

/// Rows and bytes of a side.
#[derive(Clone, Copy, Debug)]
pub struct SideSize {
    pub rows: i64,
    pub bytes: i64,
}

/// Whether both sides can be read within a step: they are small, or a few rows of them were copied, which an index
/// finds. The planner's estimates are useless for a target whose rows were just copied.
pub fn is_small(
    plan: &Plan,
    sessions: &mut EngineSessions,
    table: &SplitTable,
    progress: &TableProgress,
) -> Result<bool> {
    let most = most();
    let EngineSessions { reader, target, .. } = sessions;
    if bytes(reader, &table.source)? <= most && bytes(target, &table.target)? <= most {
        return Ok(true);
    }
    Ok(progress.rows_copied <= FEW_ROWS
        && progress.bytes <= most
        && are_found(reader, &table.source, &table.source_by, &plan.scope)?
        && are_found(target, &table.target, &table.target_by, &plan.scope)?)
}

/// Returns the number of bytes of tables that are read at once.
pub fn most() -> i64 {
    let in_a_step = |rate| (rate as f64 * guc::step_time().as_secs_f64()) as i64;
    guc::max_copy_rate().map_or(SMALL, |rate| SMALL.min(in_a_step(rate)))
}

pub fn bytes(connection: &mut Connection, shape: &TableShape) -> Result<i64> {
    Ok(connection.count("the size of a table", &format!("SELECT {}", sum_of_leaves(shape)))?)
}

/// Returns the rest of a query, for the bytes of a table.
fn sum_of_leaves(shape: &TableShape) -> String {
    let oids: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
    format!(
        "coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM unnest({}::oid[]) oid",
        array_literal(&oids)
    )
}

/// Whether an index finds the rows of the scope in each leaf.
fn are_found(connection: &mut Connection, shape: &TableShape, by: &Column, scope: &Scope) -> Result<bool> {
    if shape.leaves().len() > FEW_LEAVES {
        return Ok(false);
    }
    for leaf in shape.leaves() {
        if !scope_size::is_small(connection, &leaf.name, by, scope)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the bytes of some tables, of both sides together.
pub fn sizes(sessions: &mut EngineSessions, tables: &[SplitTable], positions: &[usize]) -> Result<Vec<i64>> {
    let EngineSessions { reader, target, .. } = sessions;
    let query = |of: fn(&SplitTable) -> &TableShape| {
        let each = |(number, position): (usize, &usize)| {
            format!("SELECT {number}, {}", sum_of_leaves(of(&tables[*position])))
        };
        let all: Vec<String> = positions.iter().enumerate().map(each).collect();
        format!("{} ORDER BY 1", all.join(" UNION ALL "))
    };
    reader.send(&query(|table| &table.source))?;
    target.send(&query(|table| &table.target))?;
    let [here, there] = reader.finish_both(target);
    let (here, there) = (here?, there?);
    let bytes = |session: &Connection, row: &[Option<String>]| {
        number::count(session.shard(), "the size of a table", row.get(1).and_then(Option::as_deref))
    };
    let both = |(here, there): (&Vec<Option<String>>, &Vec<Option<String>>)| {
        Ok(bytes(reader, here)?.saturating_add(bytes(target, there)?))
    };
    here.rows.iter().zip(&there.rows).map(both).collect()
}

/// Returns the message that asks a side for the sums of some tables.
pub fn together(scope: &Scope, tables: &[SplitTable], positions: &[usize], side: Side) -> String {
    let each = |(number, position): (usize, &usize)| {
        let table = &tables[*position];
        let by = match side {
            Side::Source => &table.source_by,
            Side::Target => &table.target_by,
        };
        format!("SELECT {number}, {}", sums(table, side, &scope.predicate(by, "t")))
    };
    let all: Vec<String> = positions.iter().enumerate().map(each).collect();
    format!("SAVEPOINT together; {} ORDER BY 1", all.join(" UNION ALL "))
}

/// Reads the answers of both sides, for this many tables: what was compared of each, if both sides are equal. If one
/// of them fails, no table counts as compared: the comparison of each table alone shows which one the error belongs to.
pub fn read_together(
    SessionPair { source, target }: SessionPair<'_>,
    count: usize,
    answers: PairAnswers,
) -> Result<Vec<Option<SideSize>>> {
    match answers {
        [Ok(here), Ok(there)] => {
            let same = |(here, there): (&Vec<Option<String>>, &Vec<Option<String>>)| {
                Ok(same(sum(source, here.get(1..))?, sum(target, there.get(1..))?))
            };
            let mut all = here.rows.iter().zip(&there.rows).map(same).collect::<Result<Vec<_>>>()?;
            // A server that returns fewer rows has not compared the rest.
            all.resize_with(count, || None);
            Ok(all)
        }
        answers => {
            let mut errors = answers.into_iter().filter_map(std::result::Result::err);
            if let Some(lost) = errors.find(|error| !error.is_verdict()) {
                return Err(lost.into());
            }
            for session in [source, target] {
                session.run("ROLLBACK TO SAVEPOINT together")?;
            }
            Ok(vec![None; count])
        }
    }
}

/// Returns what was compared of a table, if both sides are equal. The servers work at the same time.
pub fn compare(plan: &Plan, sessions: &mut EngineSessions, table: &SplitTable) -> Result<Option<SideSize>> {
    let EngineSessions { reader, target, .. } = sessions;
    let message = |side, by| question(table, side, &plan.scope.predicate(by, "t"));
    let messages = [[message(Side::Source, &table.source_by), message(Side::Target, &table.target_by)]];
    let mut pairs = [SessionPair { source: reader, target }];
    let answers = ask_both(&mut pairs, &messages)?;
    let [pair] = &pairs;
    answers.into_iter().next().map_or(Ok(None), |answers| read(table, pair, answers))
}

/// Returns the query for the sums of a side's rows `t` that satisfy a condition.
pub fn question(table: &SplitTable, side: Side, condition: &str) -> String {
    format!("SELECT {}", sums(table, side, condition))
}

/// Reads the answers of both sides.
pub fn read(table: &SplitTable, pair: &SessionPair<'_>, answers: PairAnswers) -> Result<Option<SideSize>> {
    let [here, there] = answers.map(|answer| answer.map_err(|error| rows::without_values(error, table)));
    let row = |answer: Rows| answer.rows.into_iter().next().unwrap_or_default();
    let (here, there) = (row(here?), row(there?));
    Ok(same(sum(pair.source, Some(&here))?, sum(pair.target, Some(&there))?))
}

/// Returns the rest of a query, for what `sum` reads of the rows `t` of a side that satisfy a condition.
fn sums(table: &SplitTable, side: Side, condition: &str) -> String {
    let row = rows::of_side(table, side);
    let name = match side {
        Side::Source => table.source.name.clone(),
        Side::Target => table.target_only(),
    };
    format!(
        "count(*), coalesce(sum({LENGTH}), 0)::bigint, coalesce(sum({CHECKSUM}), 0)::text
           FROM (SELECT {row} AS x FROM {name} t WHERE {condition} OFFSET 0) r"
    )
}

type Sum = (SideSize, String);

fn same(here: Sum, there: Sum) -> Option<SideSize> {
    (here.0.rows == there.0.rows && here.1 == there.1).then_some(here.0)
}

/// Reads how many rows there are, and the sum of their checksums, which does not depend on the order.
fn sum(connection: &Connection, row: Option<&[Option<String>]>) -> Result<Sum> {
    let cell = |n: usize| row?.get(n)?.as_deref();
    let size = SideSize {
        rows: number::count(connection.shard(), "the number of rows of a table", cell(0))?,
        bytes: number::count(connection.shard(), "the bytes of a table's rows", cell(1))?,
    };
    Ok((size, cell(2).unwrap_or_default().to_owned()))
}
