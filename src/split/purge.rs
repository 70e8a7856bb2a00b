//! Deleting the scope's rows of a side: in batches of blocks, each a transaction of
//! its own. Both sides are guarded by then, so no row of the scope appears behind
//! the batch that has passed.

use super::engine;
use super::error::Result;
use super::points::{Point, reach};
use super::scope_size;
use super::session::Side;
use super::shape::Leaf;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::Connection;
use crate::worker::wait;
use std::time::Instant;

/// Deletes every row of the scope, or those in some leaves; returns how many there were.
/// `after_batch` is the point behind each commit.
pub fn scope_rows(
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
    generation: i64,
    only: Option<&[String]>,
    after_batch: &'static Point,
) -> Result<u64> {
    connection.run("SET session_replication_role = replica")?;
    let observed = engine::observe(connection, plan, side)?;
    let mut deleted = 0;
    for (policy, shape) in plan.tables.iter().zip(&observed.tables) {
        // A table or column that is gone holds no rows of the scope.
        let Some(column) = shape.column(&policy.shard_by) else { continue };
        let scope = plan.scope.predicate(column, "t");
        let wanted = |leaf: &&Leaf| only.is_none_or(|only| only.contains(&leaf.oid));
        for leaf in shape.leaves().iter().filter(wanted) {
            let few = scope_size::is_small(connection, &leaf.name, column, &plan.scope)?;
            let batches =
                Batches { plan, side, generation, leaf: &leaf.name, scope: &scope, few, after_batch };
            deleted += batches.run(connection)?;
        }
    }
    Ok(deleted)
}

struct Batches<'a> {
    plan: &'a Plan,
    side: Side,
    generation: i64,
    leaf: &'a str,
    scope: &'a str,
    /// Few rows, which an index finds: one batch.
    few: bool,
    after_batch: &'static Point,
}

impl Batches<'_> {
    fn run(&self, connection: &mut Connection) -> Result<u64> {
        let size = connection.query(
            "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint",
            &[Some(self.leaf)],
        )?;
        let total: i64 = size.scalar().and_then(|t| t.parse().ok()).unwrap_or(0);
        let (mut from, mut blocks, mut deleted) = (0_i64, 256_i64, 0_u64);
        loop {
            let to = from + blocks;
            let is_last = to >= total || self.few;
            let lower = if from == 0 { String::new() } else { format!("t.ctid >= '({from},0)'::tid AND") };
            let upper = if is_last { String::new() } else { format!("AND t.ctid < '({to},0)'::tid") };
            let began = Instant::now();
            engine::begin_as(connection, self.plan.id, self.side, self.generation)?;
            let result = connection
                .run(&format!("DELETE FROM ONLY {} t WHERE {lower} {} {upper}", self.leaf, self.scope))?;
            connection.run("COMMIT")?;
            reach(self.after_batch)?;
            deleted += result.affected;
            wait::report(&format!("deleting rows of {}: block {from} of {total}", self.leaf));
            if is_last {
                return Ok(deleted);
            }
            from = to;
            let factor = guc::step_time().as_secs_f64() / began.elapsed().as_secs_f64().max(0.001);
            blocks = ((blocks as f64 * factor.clamp(0.1, 2.0)) as i64).clamp(8, 1 << 16);
        }
    }
}
