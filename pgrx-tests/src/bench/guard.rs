//! What a guard costs clients whose keys belong on the shard: rows of one INSERT, and single-row updates by
//! pgbench, with its triggers and without.

use super::Size;
use super::capture::Script;
use super::redirect::switch;
use super::rig::Rig;
use super::stats::{Goal, Measure};
use crate::Result;
use postgres::NoTls;
use std::time::Instant;

const TENANTS: i64 = 20_000;
const ROWS_OF_TENANT: i64 = 20;

pub fn guard(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(TENANTS * ROWS_OF_TENANT, TENANTS)?;
    rig.cluster.superuser()?.batch_execute("CALL shard_guard_install('shard_a')")?;
    let rows = size.rows(200_000);
    let mut inserts = Measure::new("an inserted row of a key that belongs there", "µs", Goal::AtMost(15.0));
    let mut updates = Measure::new("updates that keep the key", "tps", Goal::RatioAtLeast(0.95));
    let script = Script::new("guarded", &format!("random(0, {TENANTS} - 1)"), TENANTS)?;
    let mut client = rig.client_config().connect(NoTls)?;
    for round in 0..size.pairs(10) {
        rig.settle()?;
        // The rounds take turns in which of a pair runs first.
        for step in 0..2 {
            let with = (step + round) % 2 == 0;
            switch(&rig, with)?;
            let began = Instant::now();
            client.batch_execute(&format!(
                "BEGIN; INSERT INTO items SELECT 1000000000 + i, i % {TENANTS}, 0, 'x' FROM generate_series(1, {rows}) i; ROLLBACK"
            ))?;
            let each = began.elapsed().as_secs_f64() * 1e6 / rows as f64;
            let tps = script.run(&rig, size.seconds(4))?;
            if with {
                inserts.ours.push(each);
                updates.ours.push(tps);
            } else {
                inserts.reference.push(each);
                updates.reference.push(tps);
            }
        }
        println!("  round {}", round + 1);
    }
    Ok(vec![inserts, updates])
}
