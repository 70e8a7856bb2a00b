//! A cluster whose shards are reached through relays, and checks of a cutover in it: how long writers wait,
//! and what happens to a cutover that is aborted.

use crate::cluster::{Cluster, DATABASE, MOVER};
use crate::fixture::{LIMIT, cluster, state_of};
use crate::relay::Relay;
use crate::split::Split;
use crate::wait;
use postgres::Client;
use std::time::{Duration, Instant};

/// The timeout of the cutovers here, in which nothing is slow unless a test makes it so.
pub const TIMEOUT: Duration = Duration::from_secs(3);
/// What is promised beyond the timeout.
pub const GRACE: Duration = Duration::from_secs(2);

/// A cluster whose shards are reached through relays.
pub struct RelayedCluster {
    pub cluster: Cluster,
    pub source: Relay,
    pub target: Relay,
}

impl RelayedCluster {
    pub fn new(config: &[&str]) -> RelayedCluster {
        let timeout = format!("shardmaster.cutover_timeout = '{}ms'", TIMEOUT.as_millis());
        let lines: Vec<&str> = [timeout.as_str()].into_iter().chain(config.iter().copied()).collect();
        RelayedCluster::of(cluster(&lines))
    }

    /// Puts a relay in front of each server.
    pub fn of(cluster: Cluster) -> RelayedCluster {
        let relay = |index: usize| Relay::before(&cluster.servers[index]).unwrap();
        let (source, target) = (relay(0), relay(1));
        let mut master = cluster.superuser().unwrap();
        for (key, relay) in [("shard_a", &source), ("shard_b", &target)] {
            master
                .execute(
                    "UPDATE shardmaster.shard SET conninfo = $2 WHERE shard_key = $1",
                    &[&key, &relay.conninfo(DATABASE, MOVER)],
                )
                .unwrap();
        }
        RelayedCluster { cluster, source, target }
    }
}

/// A writer of the moving tenant gets an answer within the limit. It is told to retry until it has written.
/// Statements that wait at the fence are not cut short.
pub fn writes_within(writer: &mut Client, limit: Duration) -> Duration {
    let began = Instant::now();
    wait::until("a write to be served", limit, || {
        match writer.batch_execute("UPDATE items SET val = 'served' WHERE tenant = 'moves' AND id = 2") {
            Ok(()) => Ok(Some(())),
            Err(e) if matches!(state_of(&e), "SM002" | "40001") => Ok(None),
            Err(e) => Err(e.into()),
        }
    })
    .unwrap();
    // A single answer may have taken longer than all the time that there is.
    let took = began.elapsed();
    assert!(took <= limit, "{took:?}, where {limit:?} is the limit");
    took
}

/// Whether the route of the moving tenant leads to the source again.
pub fn is_routed_back(cluster: &Cluster) -> bool {
    let route = "SELECT write_shard || ' ' || status FROM shard_entries() WHERE key = 'moves'";
    let found: String = cluster.superuser().unwrap().query_one(route, &[]).unwrap().get(0);
    found == "shard_a active"
}

pub fn given_up(split: &Split<'_>) {
    let error = split.wait("completed", TIMEOUT + GRACE * 2).unwrap_err();
    assert!(error.to_string().contains("cutover aborted"), "{error}");
    wait::until("the cutover to be reverted", GRACE, || {
        let step = "SELECT cutover_step FROM shardmaster.split_plan WHERE reverse_of IS NULL";
        let step: String = split.superuser()?.query_one(step, &[])?.get(0);
        Ok((step == "none").then_some(()))
    })
    .unwrap();
}

/// An answer older than this is no longer a sign of life of a shard.
const NOT_LATELY: Duration = Duration::from_millis(50);

/// Holds a cutover at a point, does something to the cluster, and lets the cutover continue.
pub fn interrupt(split: &Split<'_>, cluster: &Cluster, point: &str, harm: impl FnOnce()) {
    cluster.hold(point).unwrap();
    split.call("cutover").unwrap();
    split.wait_held(point, LIMIT).unwrap();
    harm();
    std::thread::sleep(NOT_LATELY);
    cluster.fault("").unwrap();
}

/// Ends the worker without notice.
pub fn terminate(cluster: &Cluster) {
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    cluster.superuser().unwrap().batch_execute(end).unwrap();
}

/// Makes the request of the cutover hours old, as if a server had been away.
pub fn age_request(cluster: &Cluster) {
    let age = "UPDATE shardmaster.split_plan SET cutover_asked_at = cutover_asked_at - interval '3 hours'";
    cluster.superuser().unwrap().batch_execute(age).unwrap();
}
