//! Servers for statements that run on all shards or on none. Such statements can be held at their injection points.

use crate::cluster::{Cluster, DATABASE};
use crate::fixture::{LIMIT, by_superusers, state_of};
use crate::wait;
use postgres::Client;
use std::thread;

/// Servers whose tables belong to the role `deployer`. The role `dba` connects to them as that role.
pub fn stage_of(count: usize, config: &[&str]) -> Cluster {
    let mut lines = vec!["fsync = off", "max_prepared_transactions = 5", "shardmaster.tail_interval = 20"];
    lines.extend_from_slice(config);
    let cluster = Cluster::servers(count, &lines).unwrap();
    by_superusers(
        &cluster,
        "CREATE ROLE deployer LOGIN; GRANT CREATE ON SCHEMA public TO deployer; GRANT deployer TO mover; SET ROLE deployer;
         CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id)); CREATE TABLE runs (n serial);
         CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'never'; END$$;
         GRANT ALL ON items TO mover; GRANT ALL ON items TO app",
    );
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text'); SELECT shard_assign('moves', 'shard_a');
             CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'deployer')",
        )
        .unwrap();
    cluster
}

pub fn stage(count: usize) -> Cluster {
    stage_of(count, &[])
}

pub fn dba(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "dba").unwrap()
}

pub const INSERT: &str = "CALL shard_execute('INSERT INTO runs DEFAULT VALUES', two_phase => true)";

pub fn states(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.superuser().unwrap().query("SELECT state FROM shard_executions()", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

pub fn number(cluster: &Cluster, server: usize, query: &str) -> i64 {
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// Returns how often each shard has run the statement.
pub fn runs(cluster: &Cluster) -> Vec<i64> {
    (0..cluster.servers.len()).map(|server| number(cluster, server, "SELECT count(*) FROM runs")).collect()
}

pub fn prepared(cluster: &Cluster) -> i64 {
    (0..cluster.servers.len())
        .map(|server| number(cluster, server, "SELECT count(*) FROM pg_prepared_xacts"))
        .sum()
}

/// Waits until no statement is open any more.
pub fn wait_settled(cluster: &Cluster) {
    let query = "SELECT NOT EXISTS (SELECT FROM shard_executions() WHERE state IN ('running', 'prepared', 'committing'))";
    wait::until_true(&mut cluster.superuser().unwrap(), "it to be settled", LIMIT, query).unwrap();
    assert_eq!(prepared(cluster), 0);
}

/// Makes a call in a session of its own. The thread returns its error, if it fails.
pub fn in_background(cluster: &Cluster, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    let (mut caller, call) = (dba(cluster), call.to_owned());
    thread::spawn(move || {
        let error = caller.batch_execute(&call).err()?;
        let message = error.as_db_error().map_or(String::new(), |error| error.message().to_owned());
        Some((state_of(&error).to_owned(), message))
    })
}

/// Makes a call that is held at a point.
pub fn held(cluster: &Cluster, point: &str, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    cluster.hold(point).unwrap();
    let call = in_background(cluster, call);
    wait_held(cluster, point);
    call
}

pub fn wait_held(cluster: &Cluster, point: &str) {
    let query =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'held at point \"{point}\"'");
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}
