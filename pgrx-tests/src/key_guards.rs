//! Shards with key guards: how guards are installed, and who was refused.

use crate::cluster::Cluster;
use crate::fixture::{LIMIT, outcome};
use crate::wait;
use postgres::Client;
use std::thread;

pub const INSTALL: &str = "CALL shard_guard_install('shard_a')";

pub fn install(cluster: &Cluster, shard: &str, keyspace: &str) {
    let call = format!("CALL shard_guard_install('{shard}', '{keyspace}')");
    cluster.superuser().unwrap().batch_execute(&call).unwrap();
}

/// Runs statements, each in a transaction of its own.
pub fn each(client: &mut Client, statements: &[&str]) {
    for statement in statements {
        client.batch_execute(statement).unwrap();
    }
}

pub fn guards(cluster: &Cluster) -> Vec<String> {
    let query = "SELECT concat_ws(' ', shard_key, state, keys) FROM shard_guards() WHERE side = 'standing'";
    cluster.superuser().unwrap().query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Tries a write and rolls it back.
pub fn tried(client: &mut Client, statement: &str) -> String {
    outcome(client, &format!("BEGIN; {statement}; ROLLBACK"))
}

pub fn in_background(cluster: &Cluster, call: &str) -> thread::JoinHandle<String> {
    let (mut caller, call) = (cluster.superuser().unwrap(), call.to_owned());
    thread::spawn(move || outcome(&mut caller, &call))
}

pub fn wait_held(cluster: &Cluster, point: &str) {
    let query =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'held at point \"{point}\"'");
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}

/// Checks that no server has refused a client. A client whose key is routed to the shard must not be refused.
pub fn assert_nobody_was_refused(cluster: &Cluster) {
    for server in cluster.servers.iter().chain([&cluster.master]) {
        let log = std::fs::read_to_string(server.log_path()).unwrap_or_default();
        let refused: Vec<&str> =
            log.lines().filter(|line| line.contains("does not belong to shard")).collect();
        assert!(refused.is_empty(), "{}: {refused:?}", server.name());
    }
}
