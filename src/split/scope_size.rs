//! Few rows of a big table: an index finds them faster than a walk over its blocks.

use super::error::Result;
use super::quote::literal;
use crate::agent;
use crate::remote::Connection;
use crate::split::shape::Column;

/// Rows that are read in one go, about what a step of a second copies.
const FEW: f64 = 100_000.0;

/// Whether the scope has few rows in a leaf, by the planner's estimate, and an index
/// that leads with the shard-by column finds them. Then the leaf is one chunk, which
/// costs its own rows only, however big the table is.
pub fn is_small(
    connection: &mut Connection,
    leaf: &str,
    column: &Column,
    tenants: &[String],
) -> Result<bool> {
    let index = connection.run(&format!(
        "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
          WHERE i.indrelid = {}::regclass AND a.attname = {} AND i.indisvalid AND i.indpred IS NULL LIMIT 1",
        literal(leaf),
        literal(&column.name)
    ))?;
    if index.rows.is_empty() {
        return Ok(false);
    }
    let plan = connection.run(&format!(
        "EXPLAIN (FORMAT JSON) SELECT 1 FROM ONLY {leaf} t WHERE {}",
        agent::scope_predicate(column, "t", tenants)
    ))?;
    let plan: serde_json::Value =
        plan.scalar().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let (rows, node) = (&plan[0]["Plan"]["Plan Rows"], &plan[0]["Plan"]["Node Type"]);
    Ok(rows.as_f64().is_some_and(|rows| rows <= FEW) && node != "Seq Scan")
}
