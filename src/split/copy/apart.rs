//! The tables of a split must stay separate: one that becomes a partition of another would be copied by both.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::TableShape;
use crate::error::SqlState;
use std::collections::HashMap;

/// Returns the first two tables that have a partition in common.
fn joined(tables: &[TableShape]) -> Option<(&TableShape, &TableShape)> {
    if !tables.iter().any(TableShape::is_partitioned) {
        return None;
    }
    let mut seen: HashMap<&str, &TableShape> = HashMap::new();
    let mut leaves = tables.iter().flat_map(|table| table.leaves().iter().map(move |leaf| (leaf, table)));
    leaves.find_map(|(leaf, table)| seen.insert(&leaf.oid, table).map(|other| (other, table)))
}

/// Refuses tables with a common partition. Users can attach one to another, since the names of the split's triggers
/// differ. The split then waits for its operator to decide.
pub fn require(shard: &str, tables: &[TableShape]) -> Result<()> {
    refuse(
        shard,
        tables,
        "Detach the partition and resume the split with the call that it stopped in. Or roll the split back, remove one of the tables with shard_table_drop(), and start it again.",
    )
}

/// Refuses such tables after the cutover: rows of one would be looked for in the other on the target.
pub fn require_to_finish(shard: &str, tables: &[TableShape]) -> Result<()> {
    refuse(shard, tables, "Detach the partition, then call shard_split_finish again.")
}

fn refuse(shard: &str, tables: &[TableShape], hint: &str) -> Result<()> {
    let Some((one, other)) = joined(tables) else { return Ok(()) };
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "tables {} and {} have become one partition tree on shard \"{shard}\" while rows of both move",
            one.name, other.name
        ),
        hint,
    ))
}
