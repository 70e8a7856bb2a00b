//! Rows that move and have numbers beyond the sequence that fills their column, as imports and fixtures give them: the source's
//! comes to such a number one day, the target's perhaps sooner.

use super::draw::Draw;
use super::survey::Survey;
use crate::agent::error::{Result, SplitError};
use crate::agent::shape::{Column, Observation};
use crate::catalog::split::{Plan, Policy};
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::{ident, ident_as_needed, literal};
use crate::split::finding::Finding;
use crate::split::remark::Remark;

/// For all tables. By an index that begins with the key or the number one row is read of each.
const LONGEST_MS: u32 = 5_000;
const NUMERIC: [&str; 4] = ["smallint", "integer", "bigint", "numeric"];

pub fn check(
    plan: &Plan,
    source: &mut Connection,
    on_source: &Observation,
    found: &Survey,
) -> Result<Vec<Finding>> {
    let looked: Vec<(&Policy, &Draw, &Column)> =
        found.of_columns[0].iter().filter_map(|draw| of_numbers(plan, on_source, draw)).collect();
    let queries: Vec<String> = looked
        .iter()
        .enumerate()
        .filter_map(|(number, (policy, draw, column))| {
            let shape = on_source.tables.get(draw.table?)?;
            let (_, moves) = plan.scope.dry_predicate(shape.column(&policy.shard_by)?, "t");
            Some(greatest(number, &shape.name, &column.name, &draw.sequence.name, &moves))
        })
        .collect();
    let Some(functions) = on_source
        .tables
        .iter()
        .zip(&plan.tables)
        .find_map(|(shape, policy)| Some(plan.scope.dry_predicate(shape.column(&policy.shard_by)?, "t").0))
        .filter(|_| !queries.is_empty())
    else {
        return Ok(Vec::new());
    };
    let query = format!(
        "{functions}; SET LOCAL statement_timeout = '{LONGEST_MS}ms'; {}",
        queries.join(" UNION ALL ")
    );
    let rows = match source.undone(|source| source.run(&query).map_err(SplitError::from)) {
        Ok(rows) => rows,
        Err(SplitError::Remote(error)) if error.is("57014") => {
            let text =
                format!("whether rows have numbers beyond their sequences was not found in {LONGEST_MS} ms");
            return Ok(vec![Finding::note(
                Remark::NumbersBeyond.check_name(),
                text,
                "An index that begins with the number finds it.",
            )]);
        }
        Err(error) => return Err(error),
    };
    let finding = |row: &Vec<Option<String>>| {
        let [Some(number), Some(last), Some(greatest)] = row.as_slice() else { return None };
        let (policy, draw, column) = looked.get(number.parse::<usize>().ok()?)?;
        Some(of_column(plan, policy, draw, column, (last, greatest)))
    };
    Ok(rows.rows.iter().filter_map(finding).collect())
}

/// Those whose numbers come over as they are, into an index that allows each once.
fn of_numbers<'a>(
    plan: &'a Plan,
    on_source: &'a Observation,
    draw: &'a Draw,
) -> Option<(&'a Policy, &'a Draw, &'a Column)> {
    let (table, name) = (draw.table?, draw.column.as_ref()?);
    let (policy, column) = (plan.tables.get(table)?, on_source.tables.get(table)?.column(name)?);
    let is_mapped = policy.maps.iter().any(|map| map.column == *name);
    let is_looked_at = draw.in_unique && draw.is_drawn() && !draw.sequence.cycles && !is_mapped;
    (is_looked_at && NUMERIC.contains(&column.type_name.as_str())).then_some((policy, draw, column))
}

/// The target's begins a margin further on.
fn greatest(number: usize, table: &str, column: &str, sequence: &str, moves: &str) -> String {
    let (column, margin) = (ident(column), guc::sequence_margin());
    format!(
        "(SELECT {number}, s.last_value, t.{column}::pg_catalog.text
            FROM {sequence} s JOIN pg_catalog.pg_sequence q ON q.seqrelid = {}::pg_catalog.regclass AND q.seqincrement > 0
            JOIN {table} t ON t.{column} > s.last_value::pg_catalog.numeric + {margin} * q.seqincrement
                          AND t.{column} > s.last_value AND t.{column} <= q.seqmax
           WHERE {moves} ORDER BY t.{column} DESC LIMIT 1)",
        literal(sequence)
    )
}

fn of_column(
    plan: &Plan,
    policy: &Policy,
    draw: &Draw,
    column: &Column,
    (last, greatest): (&str, &str),
) -> Finding {
    let detail = format!(
        "{}: column \"{}\": a row that moves has {greatest}, and sequence {} of the source, at {last}, is yet to give that out; \
         SELECT setval({}, {greatest}) on the source ends it",
        policy.table_name,
        column.name,
        draw.sequence.name,
        literal(&draw.sequence.name)
    );
    let object = format!("{}.{}", policy.table_name, ident_as_needed(&column.name));
    Finding::remark_of(plan.reverse_of, Remark::NumbersBeyond, &object, detail)
}
