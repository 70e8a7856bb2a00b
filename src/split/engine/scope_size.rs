//! Few rows of a big table: an index finds them faster than a scan of its blocks.

use crate::agent::error::Result;
use crate::agent::shape::Column;
use crate::guc;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::remote::result::Rows;

/// The greatest number of rows that are read at once, about what a step of a second copies.
const FEW_ROWS: f64 = 100_000.0;
/// The greatest number of their bytes.
const FEW_BYTES: f64 = 32e6;

/// Whether the scope has few rows in a leaf, by the planner's estimate, and an index that leads with the shard-by
/// column finds them. Then the leaf is one chunk, whose cost depends only on its own rows, however big the table is.
/// More rows than the rate limit permits in a step are never few.
pub fn is_small(connection: &mut Connection, leaf: &str, column: &Column, scope: &Scope) -> Result<bool> {
    if connection.run(&format!("SELECT {}", has_index(leaf, column)))?.scalar() != Some("t") {
        return Ok(false);
    }
    let plan = connection.run(&explain(leaf, column, scope))?;
    let allowed = guc::max_copy_rate()
        .map_or(FEW_BYTES, |rate| FEW_BYTES.min(rate as f64 * guc::step_time().as_secs_f64()));
    Ok(is_few(&plan, FEW_ROWS, allowed))
}

/// Returns an expression: whether an index of the leaf leads with the shard-by column.
pub fn has_index(leaf: &str, column: &Column) -> String {
    format!(
        "EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
          WHERE i.indrelid = {}::regclass AND a.attname = {} AND i.indisvalid AND i.indpred IS NULL)",
        literal(leaf),
        literal(&column.name)
    )
}

/// Returns the statement that asks for the planner's estimate.
pub fn explain(leaf: &str, column: &Column, scope: &Scope) -> String {
    format!("EXPLAIN (FORMAT JSON) SELECT * FROM ONLY {leaf} t WHERE {}", scope.predicate(column, "t"))
}

/// Whether, by its answer, an index finds at most this many rows, of at most this many bytes.
pub fn is_few(answer: &Rows, most: f64, allowed: f64) -> bool {
    let plan: serde_json::Value =
        answer.scalar().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let plan = &plan[0]["Plan"];
    let number = |name: &str| plan[name].as_f64().unwrap_or(f64::INFINITY);
    let (rows, bytes) = (number("Plan Rows"), number("Plan Rows") * number("Plan Width"));
    rows <= most && bytes <= allowed && plan["Node Type"] != "Seq Scan"
}
