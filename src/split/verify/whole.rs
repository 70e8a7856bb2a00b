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
use crate::split::table::Table;

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
    let most = most();
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

fn most() -> i64 {
    let in_a_step = |rate| (rate as f64 * guc::step_time().as_secs_f64()) as i64;
    guc::max_copy_rate().map_or(SMALL, |rate| SMALL.min(in_a_step(rate)))
}

pub fn bytes(connection: &mut Connection, shape: &TableShape) -> Result<i64> {
    Ok(connection.count("the size of a table", &format!("SELECT {}", sum_of_leaves(shape)))?)
}

/// The rest of a query, for the bytes of a table.
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

/// How many of the tables, from the first on, are small enough to be read with the others before them, on both
/// sides.
pub fn small_together(engine: &mut Engine, positions: &[usize]) -> Result<usize> {
    let most = most();
    let Engine { reader, target, tables, .. } = engine;
    let query = |of: fn(&Table) -> &TableShape| {
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
    let (mut read, mut count) = (0_i64, 0);
    for (here, there) in here.rows.iter().zip(&there.rows) {
        for (session, row) in [(&*reader, here), (&*target, there)] {
            let bytes =
                number::count(session.shard(), "the size of a table", row.get(1).and_then(Option::as_deref))?;
            read = read.saturating_add(bytes);
        }
        if read > most {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// What was compared of each of some tables, if both sides have the same; each side is asked in one message.
/// None of them where that fails: the walk over each knows of which it is said.
pub fn compare_together(engine: &mut Engine, positions: &[usize]) -> Result<Vec<Option<Size>>> {
    if positions.is_empty() {
        return Ok(Vec::new());
    }
    let Engine { plan, reader, target, tables, .. } = engine;
    let query = |side: Side| {
        let each = |(number, position): (usize, &usize)| {
            let table = &tables[*position];
            let (name, by) = match side {
                Side::Source => (table.source.name.clone(), &table.source_by),
                Side::Target => (table.target_only(), &table.target_by),
            };
            format!("SELECT {number}, {}", sums(table, side, (&name, &plan.scope.predicate(by, "t"))))
        };
        let all: Vec<String> = positions.iter().enumerate().map(each).collect();
        format!("SAVEPOINT together; {} ORDER BY 1", all.join(" UNION ALL "))
    };
    reader.send(&query(Side::Source))?;
    target.send(&query(Side::Target))?;
    match reader.finish_both(target) {
        [Ok(here), Ok(there)] => {
            let same = |(here, there): (&Vec<Option<String>>, &Vec<Option<String>>)| {
                Ok(same(sum(reader, here.get(1..))?, sum(target, there.get(1..))?))
            };
            here.rows.iter().zip(&there.rows).map(same).collect()
        }
        answers => {
            let mut errors = answers.into_iter().filter_map(std::result::Result::err);
            if let Some(lost) = errors.find(|error| !error.is_verdict()) {
                return Err(lost.into());
            }
            for session in [reader, target] {
                session.run("ROLLBACK TO SAVEPOINT together")?;
            }
            Ok(vec![None; positions.len()])
        }
    }
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
            format!("{settings} SELECT {}", sums(table, side, (&name, condition)))
        },
    );
    for (session, query) in [&mut *reader, &mut *target].into_iter().zip(queries) {
        session.send(&query).map_err(|error| rows::without_values(error, table))?;
    }
    // Both are taken in, whatever the one says: each is asked for more.
    let answers = reader.finish_both(target);
    let [source, there] = answers.map(|answer| answer.map_err(|error| rows::without_values(error, table)));
    let row = |answer: Rows| answer.rows.into_iter().next().unwrap_or_default();
    let (source, there) = (row(source?), row(there?));
    Ok(same(sum(reader, Some(&source))?, sum(target, Some(&there))?))
}

/// The rest of a query, for what `sum` reads of the rows `t` of a side for which a condition holds.
fn sums(table: &Table, side: Side, (name, condition): (&str, &str)) -> String {
    let row = rows::of_side(table, side);
    format!(
        "count(*), coalesce(sum({LENGTH}), 0)::bigint, coalesce(sum({CHECKSUM}), 0)::text
           FROM (SELECT {row} AS x FROM {name} t WHERE {condition} OFFSET 0) r"
    )
}

type Sum = (Size, String);

fn same(here: Sum, there: Sum) -> Option<Size> {
    (here.0.rows == there.0.rows && here.1 == there.1).then_some(here.0)
}

/// How many rows there are, and the sum of their checksums, which the order does not change.
fn sum(connection: &Connection, row: Option<&[Option<String>]>) -> Result<Sum> {
    let cell = |n: usize| row?.get(n)?.as_deref();
    let size = Size {
        rows: number::count(connection.shard(), "the number of rows of a table", cell(0))?,
        bytes: number::count(connection.shard(), "the bytes of a table's rows", cell(1))?,
    };
    Ok((size, cell(2).unwrap_or_default().to_owned()))
}
