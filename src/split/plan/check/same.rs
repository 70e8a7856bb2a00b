//! A table that is the same on both shards, however differently they are written: rows would be copied onto
//! themselves, and finish would delete the only ones.

use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::one_database::share_locks;
use crate::agent::shape::{Leaf, TableShape};
use crate::catalog::split::Plan;
use crate::split::finding::Finding;
use crate::split::plan::refusals::{STAY, one_place};

/// Checks that, if both shards are one database, no table or partition is on both sides.
pub fn check(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let pairs = source.observation.tables.iter().zip(&target.observation.tables);
    let shared: Vec<String> = pairs.filter_map(|(from, to)| shared_table(from, to)).collect();
    if shared.is_empty() || !share_locks(&mut source.session, &mut target.session)? {
        return Ok(Vec::new());
    }
    if plan.source.namespace == plan.target.namespace {
        return Ok(vec![Finding::new("two shards", false, one_place(&plan.source, &plan.target), STAY)]);
    }
    let hint = "Leave the schema out of the table's name, so that it means each shard's namespace. Or give the shards two databases.";
    let finding =
        |name| Finding::new("two tables", false, format!("{name} is the same table on both shards"), hint);
    Ok(shared.into_iter().map(finding).collect())
}

/// Returns the first of the source's oids that the target has, too.
fn shared_table(from: &TableShape, to: &TableShape) -> Option<String> {
    if from.oid.is_some() && from.oid == to.oid {
        return Some(from.name.clone());
    }
    let is_shared = |leaf: &&Leaf| to.leaves().iter().any(|other| other.oid == leaf.oid);
    from.leaves().iter().find(is_shared).map(|leaf| leaf.name.clone())
}
