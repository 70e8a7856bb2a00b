//! A table that is the same on both shards, however differently they are written: rows
//! would be copied onto themselves, and finish would delete the only ones.

use crate::agent::error::Result;
use crate::agent::session;
use crate::agent::shape::{Leaf, Observation, TableShape};
use crate::catalog::split::Plan;
use crate::split::finding::Finding;

/// Where both shards are one database, no table or partition is on both sides.
pub fn check(plan: &Plan, source: &Observation, target: &Observation) -> Result<Vec<Finding>> {
    let pairs = source.tables.iter().zip(&target.tables);
    let shared: Vec<String> = pairs.filter_map(|(from, to)| shared_table(from, to)).collect();
    if shared.is_empty() || !is_one_database(plan)? {
        return Ok(Vec::new());
    }
    let hint = "Leave the schema out of the table's name, so that each shard's namespace is meant; or give the shards two databases.";
    let finding =
        |name| Finding::new("two tables", false, format!("{name} is the same table on both shards"), hint);
    Ok(shared.into_iter().map(finding).collect())
}

/// The first of the source's oids that the target has, too.
fn shared_table(from: &TableShape, to: &TableShape) -> Option<String> {
    if from.oid.is_some() && from.oid == to.oid {
        return Some(from.name.clone());
    }
    let is_shared = |leaf: &&Leaf| to.leaves().iter().any(|other| other.oid == leaf.oid);
    from.leaves().iter().find(is_shared).map(|leaf| leaf.name.clone())
}

/// Locks belong to one database of one running server: neither the connection strings nor
/// the identities of servers, which copies of a disk share, say as much.
fn is_one_database(plan: &Plan) -> Result<bool> {
    let mut source = session::open(&plan.source, "check")?;
    let mut target = session::open(&plan.target, "check")?;
    // By chance: everybody can hold a lock of a number that he knows.
    let key = source.run("SELECT k FROM (SELECT (random() * 9e15)::bigint) r (k), pg_advisory_lock(k)")?;
    let key = key.scalar().unwrap_or_default().to_owned();
    let taken = target.run(&format!("SELECT pg_try_advisory_lock({key})"))?;
    Ok(taken.scalar() == Some("f"))
}
