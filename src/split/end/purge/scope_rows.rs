//! Deletion of all rows of the scope on a side that holds only copies.

use super::BlockDelete;
use crate::agent::error::Result;
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Leaf, TableShape};
use crate::agent::state::progress;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::end::purge::small_batch::tables;
use crate::split::injection_points::Point;
use crate::split::references::inbound_fks::InboundFks;

/// Deletes every row of the scope on a side that holds only copies, or those in some leaves, as long as no row that
/// stays references one; returns their number. `after_batch` is the injection point after each commit.
pub fn delete(
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
    generation: i64,
    only: Option<&[String]>,
    after_batch: &'static Point,
) -> Result<u64> {
    connection.run("SET session_replication_role = replica")?;
    let observed = seen::look(connection, plan, side)?;
    let inbound = InboundFks::load(connection, plan, side)?;
    // Rows of the target are identified by what its progress records.
    let progress = progress::stored(connection, plan)?.unwrap_or_default();
    let key_identity = KeyIdentity::stored(&progress, &plan.scope, side);
    let delete = BlockDelete::new(plan, inbound, key_identity, generation, after_batch);
    delete.look_through(connection, observed.code())?;
    let shapes: Vec<TableShape> = observed.tables.iter().map(|shape| with_leaves(shape, only)).collect();
    tables(
        connection,
        &shapes,
        |connection, some| delete.few(connection, some, &shapes, None),
        |connection, position, shape| delete.table(connection, position, shape),
    )
}

/// Returns a table with only some of its leaves.
fn with_leaves(shape: &TableShape, only: Option<&[String]>) -> TableShape {
    let mut shape = shape.clone();
    if let (Some(only), Some(leaves)) = (only, shape.leaves.as_mut()) {
        leaves.retain(|leaf: &Leaf| only.contains(&leaf.oid));
    }
    shape
}
