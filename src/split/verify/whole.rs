//! A small table at once: how many rows there are, and the sum of their checksums. If both
//! sides say the same, every row has its like; if not, its rows are compared.

use super::rows::{self, CHECKSUM, LENGTH};
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::progress::TableProgress;
use crate::guc;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::number;
use crate::remote::quote::array_literal;
use crate::remote::result::Rows;
use crate::split::copy::scope_size;
use crate::split::engine::Engine;

/// Bytes of a table that are read at once, unless the rate limit lets less through in a step.
const SMALL: i64 = 16 << 20;
/// Rows of it, where the table itself is bigger.
const FEW_ROWS: i64 = 100_000;
/// Partitions of which each is asked for its plan.
const FEW_LEAVES: usize = 8;

/// Rows and bytes of a side.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub rows: i64,
    pub bytes: i64,
}

/// Whether both sides can be read within a step: they are small, or a few rows of them have come
/// over, which an index finds. What the planner expects says little of a target whose rows
/// have just come.
pub fn is_small(engine: &mut Engine, position: usize, progress: &TableProgress) -> Result<bool> {
    let most = guc::max_copy_rate()
        .map_or(SMALL, |rate| SMALL.min((rate as f64 * guc::step_time().as_secs_f64()) as i64));
    let Engine { plan, reader, target, tables, .. } = engine;
    let table = &tables[position];
    if bytes(reader, &table.source)? <= most && bytes(target, &table.target)? <= most {
        return Ok(true);
    }
    Ok(progress.rows_copied <= FEW_ROWS
        && progress.bytes <= most
        && are_found(reader, &table.source, &table.source_by, &plan.scope)?
        && are_found(target, &table.target, &table.target_by, &plan.scope)?)
}

pub fn bytes(connection: &mut Connection, shape: &TableShape) -> Result<i64> {
    let oids: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
    let query = format!(
        "SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM unnest({}::oid[]) oid",
        array_literal(&oids)
    );
    Ok(connection.count("the size of a table", &query)?)
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

/// What was compared, if both sides have the same.
pub fn compare(engine: &mut Engine, position: usize) -> Result<Option<Size>> {
    let table = &engine.tables[position];
    let scope = &engine.plan.scope;
    let conditions = [scope.predicate(&table.source_by, "t"), scope.predicate(&table.target_by, "t")];
    of_rows(engine, position, &conditions, ["", ""])
}

/// The same of the rows `t` of the source and of the target for which a condition holds; after
/// some settings of each. The servers work at the same time.
pub fn of_rows(
    engine: &mut Engine,
    position: usize,
    conditions: &[String; 2],
    settings: [&str; 2],
) -> Result<Option<Size>> {
    let Engine { reader, target, tables, .. } = engine;
    let table = &tables[position];
    let names = [table.source.name.clone(), table.target_only()];
    let queries = [Side::Source, Side::Target].into_iter().zip(names).zip(conditions).zip(settings).map(
        |(((side, name), condition), settings)| {
            let row = rows::of_side(table, side);
            format!(
                "{settings}
                 SELECT count(*), coalesce(sum({LENGTH}), 0)::bigint, coalesce(sum({CHECKSUM}), 0)::text
                   FROM (SELECT {row} AS x FROM {name} t WHERE {condition} OFFSET 0) r"
            )
        },
    );
    for (session, query) in [&mut *reader, &mut *target].into_iter().zip(queries) {
        session.send(&query).map_err(|error| rows::without_values(error, table))?;
    }
    // Both are taken in, whatever the one says: each is asked for more.
    let answers = reader.finish_both(target);
    let [source, there] = answers.map(|answer| answer.map_err(|error| rows::without_values(error, table)));
    let (source, there) = (sum(reader, source?)?, sum(target, there?)?);
    Ok((source.0.rows == there.0.rows && source.1 == there.1).then_some(source.0))
}

/// How many rows there are, and the sum of their checksums, which the order does not change.
fn sum(connection: &Connection, answer: Rows) -> Result<(Size, String)> {
    let row = answer.rows.into_iter().next().unwrap_or_default();
    let cell = |n: usize| row.get(n).and_then(Option::as_deref);
    let size = Size {
        rows: number::count(connection.shard(), "the number of rows of a table", cell(0))?,
        bytes: number::count(connection.shard(), "the bytes of a table's rows", cell(1))?,
    };
    Ok((size, cell(2).unwrap_or_default().to_owned()))
}
