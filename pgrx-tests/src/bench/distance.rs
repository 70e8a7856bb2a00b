//! What a cutover costs over a long line, and with many tables.

use super::Size;
use super::rig::LIMIT;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use crate::relayed_cluster::RelayedCluster;
use crate::split::Split;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The tables of a split, and how many of them are written to.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub tables: usize,
    pub busy: usize,
}

/// The times of a split.
pub(super) struct SplitTimes {
    pub fence: f64,
    all: f64,
    /// The time of its finish and of the end of its redirect.
    end: f64,
}

pub(super) const ONE: Shape = Shape { tables: 1, busy: 1 };

pub(super) fn prepared(tables: usize) -> Result<RelayedCluster> {
    let config =
        ["shardmaster.tail_interval = 20", "shardmaster.cutover_timeout = '60s'", "autovacuum = off"];
    let stage = RelayedCluster::of(Cluster::servers(2, &config)?);
    for shard in &stage.cluster.shards {
        let mut owner = stage.cluster.owner_of(shard)?;
        for number in 0..tables {
            owner.batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TABLE t{number} (tenant text, id bigserial, v text, PRIMARY KEY (tenant, id));
                 GRANT ALL ON t{number}, t{number}_id_seq TO {CLIENT}; RESET ROLE"
            ))?;
        }
    }
    let mut source = stage.cluster.servers[0].superuser(DATABASE)?;
    let mut master = stage.cluster.superuser()?;
    for number in 0..tables {
        source.batch_execute(&format!(
            "INSERT INTO t{number} (tenant, v) SELECT 'moves', 'v' || i FROM generate_series(1, 100) i"
        ))?;
        master
            .batch_execute(&format!("SELECT shard_table_add('t{number}', 'tenant', key_type => 'text')"))?;
    }
    master.batch_execute("SELECT shard_assign('moves', 'shard_a')")?;
    Ok(stage)
}

/// Runs one split while a writer changes a row of each busy table in turn. The writer finds out by itself
/// where the tables are.
pub(super) fn split(stage: &RelayedCluster, way: [usize; 2], busy: usize) -> Result<SplitTimes> {
    split_beside(stage, way, 1, &|_, stop| write(stage, way[0], busy, stop))
}

/// Runs one split beside `clients` clients, each of which is given its number.
fn split_beside(
    stage: &RelayedCluster,
    [from, to]: [usize; 2],
    clients: usize,
    work: &(dyn Fn(usize, &AtomicBool) -> Result<()> + Sync),
) -> Result<SplitTimes> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let clients: Vec<_> = (0..clients).map(|number| scope.spawn(move || work(number, stop))).collect();
        let took = carry_out(&stage.cluster, from, to);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| "a writer has panicked")??;
        }
        took
    })
}

/// Writes until it is stopped or redirected.
pub(super) fn write(stage: &RelayedCluster, server: usize, busy: usize, stop: &AtomicBool) -> Result<()> {
    let mut client = stage.cluster.servers[server].connect(DATABASE, CLIENT)?;
    for number in (0..busy).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let change = format!("UPDATE t{number} SET v = v || '.' WHERE tenant = 'moves' AND id = 1");
        match client.batch_execute(&change) {
            Ok(()) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) if error.code().is_some_and(|code| code.code() == "SM001") => break,
            Err(error) if error.code().is_some_and(|code| code.code() == "SM002") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes like a client of TPC-C: each transaction changes a row of every table, without a pause in between.
fn order(stage: &RelayedCluster, server: usize, tables: usize, row: usize, stop: &AtomicBool) -> Result<()> {
    let mut client = stage.cluster.servers[server].connect(DATABASE, CLIENT)?;
    let changes: String = (0..tables)
        .map(|number| {
            format!("UPDATE t{number} SET v = 'v' || random() WHERE tenant = 'moves' AND id = {row};")
        })
        .collect();
    while !stop.load(Ordering::Relaxed) {
        match client.batch_execute(&changes) {
            Err(error) if error.code().is_some_and(|code| code.code() == "SM001") => break,
            Err(error) if error.code().is_none_or(|code| code.code() != "SM002") => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn carry_out(cluster: &Cluster, from: usize, to: usize) -> Result<SplitTimes> {
    let began = Instant::now();
    let split = Split::plan(cluster, &cluster.shards[from].key, &cluster.shards[to].key, &["moves"])?;
    split.call("start_dual_write")?;
    split.call("run_backfill")?;
    split.wait("cutover_pending", LIMIT)?;
    split.call("cutover")?;
    split.wait("completed", LIMIT)?;
    let all = began.elapsed().as_secs_f64();
    let fence: f64 = split.metric("fence_ms::float8")?;
    let began = Instant::now();
    split.finish(LIMIT)?;
    split.drop_guard()?;
    Ok(SplitTimes { fence, all, end: began.elapsed().as_secs_f64() })
}

/// Splits tables there and back over lines with a delay, each split beside one of a single table without a delay.
fn beside_one(size: Size, shape: Shape, delay: Duration, most: f64) -> Result<Vec<Measure>> {
    let (one, many) = (prepared(ONE.tables)?, prepared(shape.tables)?);
    let round_trip = 2 * delay.as_millis();
    let what = format!("{} tables, {} written to, {round_trip} ms there and back", shape.tables, shape.busy);
    let mut fence = Measure::new(format!("fence: {what}"), "ms", Goal::AtMost(most));
    let mut all = Measure::new(format!("to its completion: {what}"), "s", Goal::RatioAtMost(100.0));
    let mut end =
        Measure::new(format!("finish and the redirect's end: {what}"), "s", Goal::RatioAtMost(100.0));
    for number in 0..size.pairs(4) {
        let way = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        let reference = split(&one, way, ONE.busy)?;
        for relay in [&many.source, &many.target] {
            relay.delay(delay);
        }
        let ours = split(&many, way, shape.busy)?;
        for relay in [&many.source, &many.target] {
            relay.mend();
        }
        fence.pair(reference.fence, ours.fence);
        all.pair(reference.all, ours.all);
        end.pair(reference.end, ours.end);
    }
    Ok(vec![fence, all, end])
}

/// Measures the same tables nearby and far away.
pub fn distance(size: Size) -> Result<Vec<Measure>> {
    let mut measures = beside_one(size, ONE, Duration::from_millis(5), 150.0)?;
    let forty = Shape { tables: 40, busy: 5 };
    measures.extend(beside_one(size, forty, Duration::from_millis(5), 150.0)?);
    measures.extend(beside_one(size, forty, Duration::from_millis(40), 1000.0)?);
    Ok(measures)
}

/// Eight tables and six clients. Each transaction of a client changes a row of every table.
fn orders(size: Size) -> Result<Measure> {
    let (one, eight) = (prepared(ONE.tables)?, prepared(8)?);
    let mut fence =
        Measure::new("fence: 8 tables, 6 clients that change all of them", "ms", Goal::AtMost(30.0));
    for number in 0..size.pairs(10) {
        let way = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        let reference = split(&one, way, ONE.busy)?;
        let ours = split_beside(&eight, way, 6, &|client, stop| order(&eight, way[0], 8, client + 1, stop))?;
        fence.pair(reference.fence, ours.fence);
    }
    Ok(fence)
}

/// Many tables, with both servers nearby.
pub fn tables(size: Size) -> Result<Vec<Measure>> {
    let mut measures = beside_one(size, Shape { tables: 40, busy: 5 }, Duration::ZERO, 60.0)?;
    measures.extend(beside_one(size, Shape { tables: 150, busy: 105 }, Duration::ZERO, 60.0)?);
    measures.push(orders(size)?);
    Ok(measures)
}
