//! What each step of a split costs with the number of a table's partitions; nobody writes.

use super::Size;
use super::rig::LIMIT;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, OWNER};
use crate::split::Split;
use std::time::Instant;

/// Rows that move, on however many partitions they are.
const ROWS: usize = 24_000;
const TENANTS: usize = 4;

pub fn partitions(size: Size) -> Result<Vec<Measure>> {
    let many: &[usize] = match size {
        Size::Full => &[100, 500, 5000],
        Size::Quick => &[20],
    };
    let mut measures = Vec::new();
    for leaves in many {
        // The tenants of the table without partitions move as well.
        let (flat, cluster) = (prepared(0)?, prepared(*leaves)?);
        let most = if *leaves > 500 { 12.0 } else { 1.0 };
        let goals = [("check", 1.0), ("start", 1.0), ("copy", 2.0), ("cutover", 0.5), ("finish", 3.0)];
        let mut steps: Vec<Measure> = goals
            .into_iter()
            .map(|(step, goal)| {
                Measure::new(
                    format!("{step}: {leaves} partitions beside none"),
                    "s",
                    Goal::AtMost(goal * most),
                )
            })
            .collect();
        for key in 0..size.pairs(TENANTS - 1).min(TENANTS - 1) {
            let (reference, ours) = (split(&flat, key)?, split(&cluster, key)?);
            for ((step, reference), ours) in steps.iter_mut().zip(reference).zip(ours) {
                step.pair(reference, ours);
            }
        }
        measures.extend(steps);
    }
    Ok(measures)
}

/// With 0 `leaves` the table has no partitions.
fn prepared(leaves: usize) -> Result<Cluster> {
    let locks = format!("max_locks_per_transaction = {}", 64.max(leaves * 2));
    let cluster = Cluster::servers(2, &[&locks, "autovacuum = off"])?;
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard)?;
        let by = if leaves > 0 { "PARTITION BY RANGE (id)" } else { "" };
        owner.batch_execute(&format!(
            "SET ROLE {OWNER}; CREATE TABLE p (tenant text, id bigint, v text, PRIMARY KEY (tenant, id)) {by};
             GRANT ALL ON p TO {CLIENT}; RESET ROLE"
        ))?;
        for leaf in 0..leaves {
            let (from, to) = (ROWS * leaf / leaves, ROWS * (leaf + 1) / leaves);
            owner.batch_execute(&format!(
                "SET ROLE {OWNER}; CREATE TABLE p{leaf} PARTITION OF p FOR VALUES FROM ({from}) TO ({to}); RESET ROLE"
            ))?;
        }
    }
    let mut owner = cluster.owner_of(&cluster.shards[0])?;
    owner.batch_execute(&format!(
        "INSERT INTO p SELECT 'k' || k, i, 'value ' || i
           FROM generate_series(0, {TENANTS} - 1) k, generate_series(0, {ROWS} - 1) i"
    ))?;
    owner.batch_execute("VACUUM ANALYZE p")?;
    let mut master = cluster.superuser()?;
    master.batch_execute("SELECT shard_table_add('p', 'tenant', key_type => 'text')")?;
    let keys: Vec<String> = (0..TENANTS).map(|key| format!("k{key}")).collect();
    master.execute("SELECT shard_assign_many($1, 'shard_a')", &[&keys])?;
    Ok(cluster)
}

/// Returns the seconds of each step.
fn split(cluster: &Cluster, key: usize) -> Result<[f64; 5]> {
    let split = Split::plan(cluster, "shard_a", "shard_b", &[&format!("k{key}")])?;
    let mut began = Instant::now();
    let mut took = || std::mem::replace(&mut began, Instant::now()).elapsed().as_secs_f64();
    split.findings()?;
    let check = took();
    split.call("start_dual_write")?;
    split.wait("dual_write", LIMIT)?;
    let start = took();
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    let copy = took();
    split.call("cutover")?;
    split.wait("completed", LIMIT)?;
    let cutover = took();
    split.finish(LIMIT)?;
    Ok([check, start, copy, cutover, took()])
}
