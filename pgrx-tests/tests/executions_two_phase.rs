//! One statement on all shards or on none, whoever dies meanwhile, and nothing that is left prepared.

use postgres::Client;
use shardmaster_tests::asking::error;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, state_of};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::thread;
use std::time::{Duration, Instant};

/// Servers whose tables belong to the role `deployer`, as whom the role `dba` is connected to them.
fn stage_of(count: usize, config: &[&str]) -> Cluster {
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

fn stage(count: usize) -> Cluster {
    stage_of(count, &[])
}

fn dba(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "dba").unwrap()
}

const INSERT: &str = "CALL shard_execute('INSERT INTO runs DEFAULT VALUES', two_phase => true)";

fn states(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.superuser().unwrap().query("SELECT state FROM shard_executions()", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn number(cluster: &Cluster, server: usize, query: &str) -> i64 {
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// How often each shard has done it.
fn runs(cluster: &Cluster) -> Vec<i64> {
    (0..cluster.servers.len()).map(|server| number(cluster, server, "SELECT count(*) FROM runs")).collect()
}

fn prepared(cluster: &Cluster) -> i64 {
    (0..cluster.servers.len())
        .map(|server| number(cluster, server, "SELECT count(*) FROM pg_prepared_xacts"))
        .sum()
}

/// Nothing of it is open any more.
fn wait_settled(cluster: &Cluster) {
    let query = "SELECT NOT EXISTS (SELECT FROM shard_executions() WHERE state IN ('running', 'prepared', 'committing'))";
    wait::until_true(&mut cluster.superuser().unwrap(), "it to be settled", LIMIT, query).unwrap();
    assert_eq!(prepared(cluster), 0);
}

/// A call in a session of its own; what it ends with.
fn in_background(cluster: &Cluster, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    let (mut caller, call) = (dba(cluster), call.to_owned());
    thread::spawn(move || {
        let error = caller.batch_execute(&call).err()?;
        let message = error.as_db_error().map_or(String::new(), |error| error.message().to_owned());
        Some((state_of(&error).to_owned(), message))
    })
}

/// A call that is held at a point.
fn held(cluster: &Cluster, point: &str, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    cluster.hold(point).unwrap();
    let call = in_background(cluster, call);
    wait_held(cluster, point);
    call
}

fn wait_held(cluster: &Cluster, point: &str) {
    let query =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'held at point \"{point}\"'");
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}

/// What a session comes past, and whether it is decided there.
const POINTS: [(&str, bool); 6] = [
    ("execution_running", false),
    ("execution_ran", false),
    ("execution_asked", false),
    ("execution_prepared", false),
    ("execution_decided", true),
    ("execution_committed", true),
];

#[test]
fn the_master_dies_at_each_point() {
    let mut cluster = stage(3);
    let mut done = 0;
    for (point, is_decided) in POINTS {
        let call = held(&cluster, point, INSERT);
        cluster.master.stop(Stop::Immediate).unwrap();
        assert!(call.join().unwrap().is_some());
        cluster.master.run().unwrap();
        wait_settled(&cluster);
        done += i64::from(is_decided);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
        cluster.fault("").unwrap();
        let id = "SELECT max(execution_id) FROM shard_executions()";
        let id: i64 = cluster.superuser().unwrap().query_one(id, &[]).unwrap().get(0);
        dba(&cluster).batch_execute(&format!("CALL shard_execute_resume({id})")).unwrap();
        done += i64::from(!is_decided);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
        assert!(states(&cluster).iter().all(|state| state == "done"), "{point}");
    }
}

#[test]
fn a_shard_dies_at_each_point() {
    let mut cluster = stage(3);
    let mut done = 0;
    // What is prepared survives, and what was decided goes on.
    for ((point, _), is_done) in POINTS.into_iter().zip([false, false, true, true, true, true]) {
        let call = held(&cluster, point, INSERT);
        cluster.servers[1].stop(Stop::Immediate).unwrap();
        cluster.fault("").unwrap();
        let outcome = call.join().unwrap();
        assert_eq!(outcome.is_none(), point == "execution_committed", "{point}: {outcome:?}");
        cluster.servers[1].run().unwrap();
        wait_settled(&cluster);
        done += i64::from(is_done);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
    }
}
