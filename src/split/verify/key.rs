//! The key by which the target notes what its clients change: that of the installation. Another key would find other
//! rows by it, or none.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::TableShape;
use crate::agent::state::changed;
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::table::SplitTable;

/// Whether the target's table still has the key that its guard was made for.
pub fn is_as_noted(target: &mut Connection, plan: &Plan, table: &SplitTable) -> Result<bool> {
    let noted = target.run(&format!("SELECT {}", noted(plan, table)))?;
    Ok(noted.scalar().is_none_or(|noted| noted == changed::key_of(&table.target)))
}

/// Returns an expression: the key that the target has noted for a table.
fn noted(plan: &Plan, table: &SplitTable) -> String {
    let log = literal(&changed::qualified(plan.id, table.policy.ordinal));
    format!("obj_description(to_regclass({log}), 'pg_class')")
}

/// Returns an expression: whether it is the current key.
pub fn still_noted(plan: &Plan, table: &SplitTable) -> String {
    format!("coalesce({} = {}, true)", noted(plan, table), literal(&changed::key_of(&table.target)))
}

/// Refuses to compare rows if the table has another key.
pub fn require_as_noted(target: &mut Connection, plan: &Plan, table: &SplitTable) -> Result<()> {
    if is_as_noted(target, plan, table)? {
        return Ok(());
    }
    let (shard, id) = (&plan.target.shard_key, plan.id);
    let text = format!(
        "table {} has a different primary key on shard \"{shard}\" from that at the cutover",
        table.target.name
    );
    let detail = format!(
        "the key is now ({}); the rows that clients have changed there were recorded by the former key",
        columns(&table.target)
    );
    Err(SplitError::Failed(Failure::new(SqlState::NOT_IN_STATE, text).detail(detail).hint(format!(
        "Give it its former key until the split is finished, and make the same call again. To delete the rows of shard \"{}\" without a proof that shard \"{shard}\" has them: SELECT shard_split_finish({id}, accept_missing => true).",
        plan.source.shard_key
    ))))
}

/// Refuses to compare rows if one of some tables has another key.
pub fn require_all_as_noted(target: &mut Connection, plan: &Plan, tables: &[SplitTable]) -> Result<()> {
    let noted: Vec<String> = tables.iter().map(|table| still_noted(plan, table)).collect();
    if noted.is_empty() || target.run(&format!("SELECT {}", noted.join(" AND ")))?.is_true() {
        return Ok(());
    }
    tables.iter().try_for_each(|table| require_as_noted(target, plan, table))
}

fn columns(shape: &TableShape) -> String {
    shape.key().join(", ")
}
