//! What a possible reverse split costs the clients of the target: single-row updates, by pgbench, between the
//! cutover and finish, with an armed reverse split and without.

use super::Size;
use super::capture::Script;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::Result;

const TENANTS: i64 = 2_000;
const ROWS_OF_TENANT: i64 = 20;
/// Tenants that move: every second one, those with even numbers.
const MOVING: i64 = 1_000;

pub fn way_back(size: Size) -> Result<Vec<Measure>> {
    let with = completed("on")?;
    let without = completed("off")?;
    let moved = Script::new("moved", &format!("2 * random(0, {MOVING} - 1)"), TENANTS)?;
    let mut moving = Measure::new("tenants that have moved", "tps", Goal::RatioAtLeast(0.8));
    let seconds = size.seconds(4);
    for round in 0..size.pairs(10) {
        // The rounds take turns in which of a pair runs first.
        for step in 0..2 {
            let has = (step + round) % 2 == 0;
            let rig = if has { &with } else { &without };
            rig.settle()?;
            let tps = moved.run_on(rig, 1, seconds)?;
            if has { moving.ours.push(tps) } else { moving.reference.push(tps) }
        }
        println!("  round {}", round + 1);
    }
    let queue = "SELECT pg_size_pretty(sum(pg_total_relation_size(c.oid))) FROM pg_class c
                  WHERE c.relnamespace = to_regnamespace('shardmaster_agent') AND c.relname LIKE 'queue%'";
    let queue: Option<String> = with.target()?.query_one(queue, &[])?.get(0);
    println!("  queue of the reverse split: {}", queue.unwrap_or_default());
    Ok(vec![moving])
}

/// Runs a split of half of the tenants until its cutover is completed.
fn completed(reverse: &str) -> Result<Rig> {
    let rig = Rig::new(TENANTS * ROWS_OF_TENANT, TENANTS)?;
    rig.cluster.set("shardmaster.reverse", reverse)?;
    {
        let split = rig.plan(MOVING)?;
        split.run(|_| ())?;
        split.wait("completed", LIMIT)?;
    }
    rig.target()?.batch_execute("VACUUM (ANALYZE, FREEZE) items")?;
    Ok(rig)
}
