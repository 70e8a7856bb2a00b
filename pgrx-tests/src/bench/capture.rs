//! What capture costs single-row updates, by pgbench, while nothing is copied.

use super::Size;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::cluster::{CLIENT, DATABASE};
use crate::{Result, env};
use std::path::PathBuf;
use std::process::Command;

const TENANTS: i64 = 20_000;
const ROWS_OF_TENANT: i64 = 20;
const FEW: i64 = 10;
const MANY: i64 = 10_000;

/// A script of single-row updates of one kind of tenant.
pub struct Script {
    path: PathBuf,
}

impl Script {
    /// `tenant` is a pgbench expression: the number of one of so many tenants.
    pub fn new(name: &str, tenant: &str, tenants: i64) -> Result<Script> {
        let path = env::run_dir()?.join(format!("{name}.pgbench"));
        let text = format!(
            "\\set tenant {tenant}\n\\set id :tenant + {tenants} * random(0, {ROWS_OF_TENANT} - 1)\n\
             UPDATE items SET v = v + 1 WHERE id = :id;\n"
        );
        std::fs::write(&path, text)?;
        Ok(Script { path })
    }

    /// Transactions a second on the source.
    pub fn run(&self, rig: &Rig, seconds: u64) -> Result<f64> {
        self.run_on(rig, 0, seconds)
    }

    /// Transactions a second on one of the servers.
    pub fn run_on(&self, rig: &Rig, server: usize, seconds: u64) -> Result<f64> {
        let server = &rig.cluster.servers[server];
        let mut pgbench = Command::new(env::bindir()?.join("pgbench"));
        pgbench.args(["-n", "-M", "prepared", "-c", "4", "-j", "2", "-p", "5432", "-U", CLIENT]);
        pgbench.arg("-h").arg(server.socket_dir()).arg("-T").arg(seconds.to_string());
        let output = env::run(pgbench.arg("-f").arg(&self.path).arg(DATABASE))?;
        let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
        let value = line.and_then(|rest| rest.split(' ').next()).and_then(|text| text.parse().ok());
        Ok(value.ok_or_else(|| format!("no tps in the output of pgbench:\n{output}"))?)
    }
}

pub fn capture(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(TENANTS * ROWS_OF_TENANT, TENANTS)?;
    // Even tenants move, the first ones first; odd ones stay.
    let staying = Script::new("staying", &format!("2 * random(0, {TENANTS} / 2 - 1) + 1"), TENANTS)?;
    let moving = Script::new("moving", &format!("2 * random(0, {FEW} - 1)"), TENANTS)?;
    let mut stay_few = Measure::new("staying tenants, 10 moving", "tps", Goal::RatioAtLeast(0.97));
    let mut stay_many = Measure::new("staying tenants, 10,000 moving", "tps", Goal::RatioAtLeast(0.97));
    let mut move_few = Measure::new("moving tenants, 10 moving", "tps", Goal::RatioAtLeast(0.8));
    let seconds = size.seconds(4);
    for round in 0..size.pairs(10) {
        rig.source()?.batch_execute("VACUUM items")?;
        rig.settle()?;
        // Which of a pair runs first changes with the round.
        for step in 0..2 {
            if (step + round) % 2 == 0 {
                stay_few.reference.push(staying.run(&rig, seconds)?);
                move_few.reference.push(moving.run(&rig, seconds)?);
                stay_many.reference.push(staying.run(&rig, seconds)?);
            } else {
                with_capture(&rig, FEW, || {
                    stay_few.ours.push(staying.run(&rig, seconds)?);
                    move_few.ours.push(moving.run(&rig, seconds)?);
                    Ok(())
                })?;
                with_capture(&rig, MANY, || {
                    stay_many.ours.push(staying.run(&rig, seconds)?);
                    Ok(())
                })?;
            }
        }
        println!("  round {}", round + 1);
    }
    Ok(vec![stay_few, stay_many, move_few])
}

/// With the triggers of a split of `count` tenants, of which nothing is copied yet.
fn with_capture(rig: &Rig, count: i64, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let split = rig.plan(count)?;
    split.call("start_dual_write")?;
    split.wait("dual_write", LIMIT)?;
    body()?;
    rig.take_back(&split)
}
