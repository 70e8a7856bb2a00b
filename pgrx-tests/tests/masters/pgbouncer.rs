//! A PgBouncer between the master and its shards, which gives each session of the mover a server session of
//! its own (pool_mode = session).

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, cluster, cut_over_and_compare, plan, source, to_pending};
use shardmaster_tests::process::{Directory, Process};
use shardmaster_tests::wait;
use std::fs;
use std::process::Command;

/// Starts PgBouncer in front of both shards, with one more line of configuration.
fn pgbouncer(cluster: &Cluster, line: &str) -> (Directory, Process) {
    let directory = Directory::new("pooler").unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    fs::write(directory.join("users"), format!("\"{MOVER}\" \"\"\n")).unwrap();
    let database = |(index, shard): (usize, &str)| {
        let host = cluster.servers[index].socket_dir().display().to_string();
        format!("{shard} = host={host} dbname={DATABASE}\n")
    };
    let databases: String = ["shard_a", "shard_b"].into_iter().enumerate().map(database).collect();
    let main = format!(
        "[databases]\n{databases}[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {}\nauth_type = trust\nauth_file = {}\n\
         pool_mode = session\nlogfile = {}\npidfile = {}\n{line}\n",
        directory.display(),
        path("users"),
        path("log"),
        path("pid")
    );
    fs::write(directory.join("main"), main).unwrap();
    let process = Process::start(
        Command::new("/usr/sbin/pgbouncer").arg(directory.join("main")),
        directory.join("out"),
    )
    .unwrap();
    let mut config = postgres::Config::new();
    config.host_path(&*directory).port(6432).dbname("shard_a").user(MOVER);
    wait::until("pgbouncer to listen", LIMIT, || Ok(config.connect(postgres::NoTls).ok().map(drop))).unwrap();
    (directory, process)
}

/// It either refuses the startup parameters of a session, or ignores them.
#[test]
fn a_mover_goes_through_a_pooler_of_sessions() {
    for line in ["", "ignore_startup_parameters = options"].into_iter().take(at_most(1)) {
        let cluster = cluster(&[]);
        let (directory, _process) = pgbouncer(&cluster, line);
        let conninfo = format!("host={} port=6432 user={MOVER} dbname=", directory.display());
        let update = "UPDATE shardmaster.shard SET conninfo = $1 || shard_key WHERE shard_key IN ('shard_a', 'shard_b')";
        assert_eq!(cluster.superuser().unwrap().execute(update, &[&conninfo]).unwrap(), 2);
        let split = plan(&cluster);
        to_pending(&split);
        let mut client = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
        client.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves'").unwrap();
        cut_over_and_compare(&cluster, &split);
        let refused =
            client.batch_execute("INSERT INTO items VALUES ('moves', 9000, 'x', 9000)").unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "SM001", "{line}: {refused}");
        // The sessions that the pooler keeps have no state of the mover.
        let kept = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state <> 'idle'";
        wait::until("sessions to be given back", LIMIT, || {
            Ok((source(&cluster).query_one(kept, &[&MOVER])?.get::<_, i64>(0) == 0).then_some(()))
        })
        .unwrap();
    }
}
