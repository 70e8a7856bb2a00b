//! What a check of many tables costs, beside a dump of their definitions, which reads the same catalogs of both shards.

use super::Size;
use super::distance::prepared;
use super::stats::{Goal, Measure};
use crate::cluster::{Cluster, DATABASE};
use crate::split::Split;
use crate::{Result, env};
use std::process::{Command, Stdio};
use std::time::Instant;

const TABLES: usize = 150;

pub fn check(size: Size) -> Result<Vec<Measure>> {
    let stage = prepared(TABLES)?;
    let cluster = &stage.cluster;
    let split = Split::plan(cluster, "shard_a", "shard_b", &["moves"])?;
    let name = format!("check of {TABLES} tables, two dumps of their definitions beside");
    let mut time = Measure::new(name, "ms", Goal::RatioAtMost(1.5));
    // The first check reads from disk, so it is not measured.
    checked(&split)?;
    for _ in 0..size.pairs(15) {
        let dumps = dumped(cluster)?;
        time.pair(dumps, checked(&split)?);
    }
    Ok(vec![time])
}

/// Returns milliseconds.
fn checked(split: &Split<'_>) -> Result<f64> {
    let mut master = split.superuser()?;
    let began = Instant::now();
    let bad: i64 =
        master.query_one("SELECT count(*) FROM shard_split_check($1) WHERE NOT ok", &[&split.id])?.get(0);
    let took = began.elapsed().as_secs_f64() * 1e3;
    if bad == 0 { Ok(took) } else { Err(format!("the check found {bad} problems").into()) }
}

fn dumped(cluster: &Cluster) -> Result<f64> {
    let began = Instant::now();
    for server in &cluster.servers {
        let conninfo = server.conninfo(DATABASE, "postgres");
        let status = Command::new(env::bindir()?.join("pg_dump"))
            .args(["--schema-only", "--dbname", &conninfo])
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err("pg_dump has failed".into());
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
