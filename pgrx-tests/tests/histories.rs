//! Transactions of several clients, at each isolation level, while their rows go there and back:
//! some order of them explains what they have seen and what is there in the end.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::histories::{Clients, Level, Outcome, anomalies};
use shardmaster_tests::random::seed;
use shardmaster_tests::records;
use shardmaster_tests::split::Split;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const TENANTS: usize = 4;
/// Half of them.
const MOVING: [&str; 2] = ["tenant 0", "tenant 2"];

/// Rolled back, there, back, there again and to the end, and home by a split of the other way.
fn there_and_back(cluster: &Cluster, clients: &Clients) -> shardmaster_tests::Result<()> {
    let pause = || clients.wait_for(60, LIMIT);
    let split = Split::plan(cluster, "shard_a", "shard_b", &MOVING)?;
    for point in ["cutover_locked", "cutover_applied"] {
        split.call("start_dual_write")?;
        split.call("run_backfill")?;
        split.wait("cutover_pending", LIMIT)?;
        cluster.hold(point)?;
        split.call("cutover")?;
        split.wait_held(point, LIMIT)?;
        split.call("rollback")?;
        cluster.fault("")?;
        split.wait("rolled_back", LIMIT)?;
        pause()?;
    }
    split.call("start_dual_write")?;
    split.run(|_| ())?;
    let mut last = split;
    for _ in 0..2 {
        pause()?;
        let query = "SELECT shard_split_reverse($1)";
        let back = cluster.superuser()?.query_one(query, &[&last.id])?.get(0);
        last.wait("reversed", LIMIT)?;
        last = Split::of(cluster, back);
    }
    pause()?;
    last.finish(LIMIT)?;
    pause()?;
    let home = Split::plan(cluster, "shard_b", "shard_a", &MOVING)?;
    home.run(|_| ())?;
    pause()?;
    home.finish(LIMIT)?;
    pause()
}

fn history_of(level: Level) {
    let seed = seed();
    let rounds = if std::env::var_os("SHARDMASTER_SOAK").is_some() { 20 } else { 1 };
    let cluster =
        Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20", "shardmaster.reverse = on"])
            .unwrap();
    let clients = Clients::start(&cluster, level, 4, TENANTS, seed).unwrap();
    let moved = (0..rounds).try_for_each(|_| there_and_back(&cluster, &clients));
    let (history, last) = clients.end(&cluster).unwrap();
    moved.unwrap();
    let found = anomalies(level, &history, &last);
    assert!(found.is_empty(), "SHARDMASTER_SEED={seed}: {} anomalies:\n{}", found.len(), found.join("\n"));
    let count = |outcome: Outcome| history.iter().filter(|one| one.outcome == outcome).count();
    println!("{level:?}: {} committed, {} aborted", count(Outcome::Committed), count(Outcome::Aborted));
    let (committed, aborted) = (count(Outcome::Committed), count(Outcome::Aborted));
    records::keep(
        "history",
        &[("level", &level.name()), ("committed", &committed), ("aborted", &aborted), ("anomalies", &0)],
    );
    assert!(count(Outcome::Committed) > 400);
}

#[test]
fn read_committed() {
    history_of(Level::ReadCommitted);
}

#[test]
fn repeatable_read() {
    history_of(Level::RepeatableRead);
}

#[test]
fn serializable() {
    history_of(Level::Serializable);
}
