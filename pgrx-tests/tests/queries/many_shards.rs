//! A hundred shards, as databases of one server. A query of all takes the memory of a few rows, and ends.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::by_superuser;
use shardmaster_tests::queries::{error, json};
use std::time::{Duration, Instant};

const SHARDS: i64 = 100;

/// Makes shards that all have a table `items` of ten rows. The role `analyst` queries them as `reader`, and
/// `dba` as `deployer`.
fn stage() -> Cluster {
    let config =
        ["fsync = off", "max_connections = 300", "max_files_per_process = 1000", "shared_buffers = 32MB"];
    let cluster = Cluster::servers(1, &config).unwrap();
    by_superuser(
        &cluster,
        0,
        &format!(
            "CREATE ROLE reader LOGIN; CREATE ROLE deployer LOGIN; GRANT {OWNER} TO deployer; GRANT CREATE ON SCHEMA public TO deployer;
             SET ROLE {OWNER}; CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id));
             GRANT SELECT ON items TO reader; INSERT INTO items SELECT 'one', i, 'x' FROM generate_series(1, 10) i"
        ),
    );
    let mut server = cluster.servers[0].superuser("postgres").unwrap();
    let mut master = cluster.superuser().unwrap();
    master.execute("SELECT shard_drop('shard_a')", &[]).unwrap();
    for number in 1..=SHARDS {
        let name = format!("s{number:03}");
        server.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {DATABASE}")).unwrap();
        let conninfo = cluster.servers[0].conninfo(&name, MOVER);
        master.execute("SELECT shard_add($1, $2)", &[&name, &conninfo]).unwrap();
    }
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text');
             CREATE ROLE analyst LOGIN; CREATE ROLE dba LOGIN; SELECT shard_grant('analyst', 'client'), shard_grant('dba', 'operator');
             SELECT shard_login_set('analyst', 'reader'), shard_login_set('dba', 'deployer')",
        )
        .unwrap();
    cluster
}

/// Returns the peak and the current memory of a session's process, in kB.
fn memory(client: &mut Client) -> (u64, u64) {
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |what: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmHWM:"), of("VmRSS:"))
}

#[test]
#[ignore = "make test-all: a hundred shards; make test has queries::limits::memory_is_bounded_whatever_comes"]
fn a_hundred_shards_are_asked_at_once() {
    let cluster = stage();
    let mut client = cluster.master.connect(DATABASE, "analyst").unwrap();
    let began = Instant::now();
    let count =
        "SELECT count(*), sum(n)::bigint FROM shard_query('SELECT count(*) FROM items') AS t (n bigint)";
    let row = client.query_one(count, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (SHARDS, SHARDS * 10));
    println!("a count: {:?}", began.elapsed());
    // More rows arrive than are kept.
    let page = "SELECT string_agg(j ->> 'tenant' || (j ->> 'id') || (j ->> 's'), ' ') FROM shard_query_page(
        'SELECT tenant, id, current_setting(''shardmaster_query.shard'')::text AS s FROM items', '{id DESC,\"s COLLATE \\\"C\\\"\"}', 3) AS j";
    let found: String = client.query_one(page, &[]).unwrap().get(0);
    assert_eq!(found, "one10s001 one10s002 one10s003");
    rows_are_not_collected(&mut client);
    the_ill_ones_are_named(&cluster, &mut client);
    // One query finds the shards that have drifted.
    by_superuser_of(&cluster, "s042", "ALTER TABLE items ADD note text");
    let mut dba = cluster.master.connect(DATABASE, "dba").unwrap();
    let began = Instant::now();
    let drift = "SELECT t.shard_key || ': ' || d.kind || ' ' || d.object FROM shard_topology() AS t, shard_schema_diff('s001', t.shard_key) AS d
                  WHERE t.kind = 'postgres' AND t.active AND t.shard_key <> 's001'";
    let found: Vec<String> = dba.query(drift, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    println!("their differences: {:?}", began.elapsed());
    assert_eq!(found, ["s042: column order items", "s042: column items.note"]);
}

fn by_superuser_of(cluster: &Cluster, database: &str, statement: &str) {
    cluster.servers[0].superuser(database).unwrap().batch_execute(statement).unwrap();
}

fn rows_are_not_collected(client: &mut Client) {
    let each: i64 = if is_long_run() { 100_000 } else { 5_000 };
    let (_, before) = memory(client);
    let rows = format!("SELECT i, repeat(''x'', 50) AS text FROM generate_series(1, {each}) i");
    for call in [
        format!("SELECT count(*) FROM (SELECT shard_query_json('{rows}')) t"),
        format!("SELECT count(*) FROM shard_query('{rows}') AS t (i int, text text)"),
    ] {
        let began = Instant::now();
        assert_eq!(client.query_one(&call, &[]).unwrap().get::<_, i64>(0), SHARDS * each);
        let (most, _) = memory(client);
        println!("{} rows: {:?}, {before} kB before, {most} kB at most", SHARDS * each, began.elapsed());
        assert!(most < before + 64_000, "{call}: {before} kB before, {most} kB at most");
    }
}

/// One shard hangs, one accepts no connections, and one has another schema. The others answer.
fn the_ill_ones_are_named(cluster: &Cluster, client: &mut Client) {
    by_superuser_of(cluster, "s007", "ALTER TABLE items RENAME COLUMN val TO value");
    by_superuser_of(cluster, "postgres", "ALTER DATABASE s008 ALLOW_CONNECTIONS false");
    let mut holder = cluster.servers[0].superuser("s009").unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE items").unwrap();
    let began = Instant::now();
    let found = json(
        client,
        "shard_query_json('SELECT count(val) FROM items', timeout => '4 s', on_error => 'report')",
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let (ill, well): (Vec<_>, Vec<_>) = found.iter().partition(|row| row.contains("shard_error"));
    assert_eq!((well.len(), ill.len()), (97, 3), "{ill:?}");
    for shard in ["s007", "s008", "s009"] {
        assert!(ill.iter().any(|row| row.contains(&format!("\"shard\": \"{shard}\""))), "{ill:?}");
    }
    let (state, _) =
        error(client, "SELECT * FROM shard_query_json('SELECT count(val) FROM items', timeout => '4 s')");
    assert!(["08006", "42703", "55000"].contains(&state.as_str()), "{state}");
    drop(holder);
    by_superuser_of(cluster, "s007", "ALTER TABLE items RENAME COLUMN value TO val");
    by_superuser_of(cluster, "postgres", "ALTER DATABASE s008 ALLOW_CONNECTIONS true");
}
