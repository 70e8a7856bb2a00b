//! What the departure of tenants costs those that stay: single-row updates, by pgbench, on a shard that
//! finished splits have taken tenants from, with its redirect and without.

use super::Size;
use super::capture::Script;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::Result;
use crate::split::Split;

const TENANTS: i64 = 2_000;
const ROWS_OF_TENANT: i64 = 20;
/// Tenants of each split.
const LEAVE: i64 = 10;

pub fn redirect(size: Size) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    let mut rigs = Vec::new();
    for splits in [1, 20] {
        let rig = Rig::new(TENANTS * ROWS_OF_TENANT, TENANTS)?;
        for number in 0..splits {
            leave(&rig, number)?;
        }
        rig.source()?.batch_execute("VACUUM (ANALYZE, FREEZE) items")?;
        rigs.push(rig);
        let name = format!("staying tenants, {splits} finished splits");
        measures.push(Measure::new(name, "tps", Goal::RatioAtLeast(0.95)));
    }
    let staying = Script::new("staying", &format!("2 * random(0, {TENANTS} / 2 - 1) + 1"), TENANTS)?;
    let seconds = size.seconds(4);
    for round in 0..size.pairs(10) {
        for (rig, measure) in rigs.iter().zip(&mut measures) {
            rig.settle()?;
            // The rounds take turns in which of a pair runs first.
            for step in 0..2 {
                let with = (step + round) % 2 == 0;
                switch(rig, with)?;
                let tps = staying.run(rig, seconds)?;
                if with { measure.ours.push(tps) } else { measure.reference.push(tps) }
            }
        }
        println!("  round {}", round + 1);
    }
    Ok(measures)
}

/// Runs a split of some even tenants, and finishes it.
fn leave(rig: &Rig, number: i64) -> Result<()> {
    let keys: Vec<String> = (number * LEAVE..(number + 1) * LEAVE).map(|t| (2 * t).to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let split = Split::plan(&rig.cluster, "shard_a", "shard_b", &keys)?;
    split.run(|_| ())?;
    split.finish(LIMIT)
}

/// Switches the triggers of the redirect, or of a guard, on or off.
pub fn switch(rig: &Rig, with: bool) -> Result<()> {
    let change = if with { "ENABLE ALWAYS" } else { "DISABLE" };
    let statement = format!(
        "DO $$ DECLARE t name; BEGIN
             FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass AND tgname LIKE '%shardmaster%' LOOP
                 EXECUTE format('ALTER TABLE items {change} TRIGGER %I', t);
             END LOOP;
         END $$"
    );
    let mut source = rig.source()?;
    source.batch_execute(&statement)?;
    Ok(source.batch_execute("VACUUM items")?)
}
