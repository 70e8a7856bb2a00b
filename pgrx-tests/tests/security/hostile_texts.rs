//! Whole splits with every text that a user can give, from a list of hostile ones. Master and shards must run
//! only our own SQL.

use postgres::Client;
use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::fixture::LIMIT;
use shardmaster_tests::hostile::stage::{HostileCluster, KEYSPACE, KINDS, RANGES, SHARDS};
use shardmaster_tests::hostile::texts::{MARK, NAMES, NO_NAMES, all, ident, literal};
use shardmaster_tests::nginx::{Nginx, Requests, percent_encoded};
use shardmaster_tests::server::Server;
use shardmaster_tests::split::Split;
use std::fs;

/// Texts may be anything. Names must be of objects that the master knows.
#[test]
fn a_name_that_could_be_obeyed_is_none() {
    let cluster = Cluster::servers(0, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    for text in NO_NAMES {
        for call in [
            "SELECT shard_add($1, kind => 'gpu')",
            "SELECT shard_add('a', kind => $1)",
            "SELECT shard_add('a', namespace => $1)",
            "SELECT shard_keyspace_add($1, 'directory')",
        ] {
            let error = master.execute(call, &[&text]).expect_err(text);
            assert_eq!(error.code().unwrap().code(), "22023", "{call}: {text}: {error}");
        }
    }
    let line_break = "SELECT shard_add('a', E'host=a dbname=''b\\nc''')";
    assert_eq!(master.execute(line_break, &[]).unwrap_err().code().unwrap().code(), "22023");
    for text in all().into_iter().filter(|text| *text != "NULL") {
        for call in [
            "SELECT shard_set_service('a', $1)",
            "SELECT shard_gateway_config($1)",
            "SELECT shard_gateway_config('nginx', key_from => $1)",
            "SELECT shard_gateway_config('nginx', key_from => 'header:' || $1)",
            "SELECT shard_gateway_config('nginx', listen => $1)",
            "SELECT shard_gateway_config('nginx', listen => 'unix:/' || $1)",
            "SELECT shard_set_status('a', $1)",
            "SELECT shard_keyspace_add('k', $1)",
            "SELECT shard_of('x', $1)",
            "SELECT shard_add('a', $1)",
            "SELECT shard_split_wait(1, $1)",
            "SELECT shard_snowflake_parts($1::text::bigint)",
        ] {
            let error = master.execute(call, &[&text]).expect_err(text);
            let code = error.code().unwrap().code();
            assert!(["22023", "42704", "22P02"].contains(&code), "{call}: {text}: {error}");
        }
    }
}

fn plan<'a>(stage: &'a HostileCluster, keyspace: &str, keys: &[&str]) -> Split<'a> {
    let query = "SELECT shard_split_plan($1, $2, $3, $4, $5)";
    let mut master = stage.cluster.superuser().unwrap();
    let row = master.query_one(query, &[&SHARDS[0], &SHARDS[1], &keys, &NAMES[3], &keyspace]).unwrap();
    Split::of(&stage.cluster, row.get(0))
}

fn to_pending(split: &Split<'_>) {
    assert_eq!(split.findings().unwrap(), [""; 0]);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
}

/// Writes as a client to all rows of all tables. Returns the SQLSTATE of each refused write.
fn write(stage: &HostileCluster, keys: &[&str]) -> Vec<String> {
    let mut refused = Vec::new();
    let mut client = stage.client(0).unwrap();
    let mut master = stage.cluster.superuser().unwrap();
    for table in stage.of_keyspace() {
        let (name, by) = (stage.table(table, 0), ident(table.by));
        let (id, payload) = (ident(table.id), ident(table.payload));
        for key in keys {
            let key = literal(key);
            let write = format!(
                "UPDATE {name} SET {payload} = {payload} || {key} WHERE {by}::text = {key} AND {id} < 4;
                 DELETE FROM {name} WHERE {by}::text = {key} AND {id} = 4"
            );
            let Err(error) = client.batch_execute(&write) else { continue };
            let db = error.as_db_error().unwrap();
            refused.push(db.code().code().to_owned());
            // The detail is for programs, whatever it contains.
            let detail = db.detail().unwrap();
            let is_read = "SELECT $1::text::json->>'shard' IS NOT NULL";
            assert!(master.query_one(is_read, &[&detail]).unwrap().get::<_, bool>(0), "{detail}");
        }
    }
    refused
}

/// Counts the rows of some keys.
fn count(stage: &HostileCluster, side: usize, keys: &[&str]) -> i64 {
    let mut client = stage.on(side).unwrap();
    let mut count = 0;
    for table in stage.of_keyspace() {
        let query = format!(
            "SELECT count(*) FROM {} WHERE {}::text = ANY ($1)",
            stage.table(table, side),
            ident(table.by)
        );
        count += client.query_one(&query, &[&keys]).unwrap().get::<_, i64>(0);
    }
    count
}

fn look(stage: &HostileCluster) {
    stage.look(&mut stage.cluster.superuser().unwrap(), "the master").unwrap();
    for side in [0, 1] {
        stage.look(&mut stage.on(side).unwrap(), SHARDS[side]).unwrap();
    }
}

/// Asks gateways with a service for each shard, and checks the shard of each key.
fn ask_gateways(master: &mut Client) {
    let mut nginx = Nginx::new(&["first", "second"]).unwrap();
    for (shard, service) in SHARDS.iter().zip(["first", "second"]) {
        master.execute("SELECT shard_set_service($1, $2)", &[shard, &nginx.socket(service)]).unwrap();
    }
    let config = |master: &mut Client, gateway: &str, keyspace: &str| -> String {
        let query = "SELECT shard_gateway_config($1, $2, 'query:key', $3)";
        master.query_one(query, &[&gateway, &keyspace, &nginx.socket("gateway")]).unwrap().get(0)
    };
    for line in config(master, "pgbouncer", KEYSPACE).lines().filter(|line| line.contains(MARK)) {
        assert!(line.starts_with("; "), "{line}");
    }
    let text = config(master, "nginx", RANGES);
    fs::write(nginx.file("ranges"), text.replace("gateway.sock", "ranges.sock")).unwrap();
    fs::write(nginx.file("keys"), config(master, "nginx", KEYSPACE)).unwrap();
    nginx.start("gateway").unwrap();
    let mut requests = Requests::open(&nginx, "gateway").unwrap();
    for key in all() {
        let target = [b"/?key=".to_vec(), percent_encoded(key)].concat();
        let (_, service) = requests.get(&target, &[]).unwrap();
        let route: String =
            master.query_one("SELECT shard_of($1, keyspace => $2)", &[&key, &KEYSPACE]).unwrap().get(0);
        assert_eq!(service, if route == SHARDS[0] { "first" } else { "second" }, "{key}");
    }
}

#[test]
fn no_text_of_a_user_is_obeyed() {
    let mut stage = HostileCluster::new().unwrap();
    let (few, many) = (stage.keys[..4].to_vec(), stage.keys[4..].to_vec());
    let mut master = stage.cluster.superuser().unwrap();
    master.batch_execute("LISTEN shardmaster").unwrap();

    // A few keys stand in the triggers' conditions. Some columns are computed.
    let split = plan(&stage, KEYSPACE, &few);
    let map = "SELECT shard_split_map($1, $2, $3, $4)";
    for table in stage.of_keyspace().take(2) {
        let expression = format!("{} || t.{}", literal(NO_NAMES[1]), ident(table.payload));
        master.execute(map, &[&split.id, &ident(table.name), &table.payload, &expression]).unwrap();
    }
    to_pending(&split);
    assert_eq!(write(&stage, &few), Vec::<String>::new());
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let tables = stage.of_keyspace().count() as i64;
    assert_eq!(count(&stage, 1, &few), 4 * 4 * tables);
    let refused = write(&stage, &few);
    assert!(
        refused.len() as i64 == 4 * tables && refused.iter().all(|state| state == "SM001"),
        "{refused:?}"
    );
    look(&stage);
    split.finish(LIMIT).unwrap();
    assert_eq!(write(&stage, &few).len() as i64, 0);
    assert_eq!(count(&stage, 0, &few), 0);

    // Many keys are looked up. The split is rolled back.
    let split = plan(&stage, KEYSPACE, &many);
    to_pending(&split);
    assert_eq!(write(&stage, &many), Vec::<String>::new());
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(count(&stage, 1, &many), 0);
    look(&stage);

    // The labels of an enum and the bounds of ranges are such texts.
    let split = plan(&stage, KINDS, &few);
    to_pending(&split);
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let query = "SELECT shard_split_plan_range($1, $2, $3, $4, $5, $6)";
    let (lower, upper) = (NO_NAMES[0], NO_NAMES[2]);
    let row = master.query_one(query, &[&SHARDS[0], &SHARDS[1], &lower, &upper, &NAMES[0], &RANGES]).unwrap();
    let split = Split::of(&stage.cluster, row.get(0));
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    master.execute("SELECT shard_range_midpoint($1, $2, NULL)", &[&RANGES, &upper]).unwrap();
    ask_gateways(&mut master);
    look(&stage);

    let mut notifications = master.notifications();
    let mut heard = notifications.iter();
    let mut other = stage.cluster.superuser().unwrap();
    while let Ok(Some(notification)) = fallible(&mut heard) {
        let is_read = "SELECT $1::text::json->>'event' IS NOT NULL";
        assert!(other.query_one(is_read, &[&notification]).unwrap().get::<_, bool>(0), "{notification}");
    }
    drop(heard);
    drop(notifications);

    // These are the remains of a lost master.
    let split = plan(&stage, KEYSPACE, &many[..3]);
    to_pending(&split);
    look(&stage);
    stage.cluster.replace_master(&["fsync = off"]).unwrap();
    let mut master = stage.cluster.superuser().unwrap();
    stage.add_shards(&mut master).unwrap();
    for shard in SHARDS {
        master.execute("SELECT shard_adopt($1)", &[&shard]).unwrap();
    }
    for (side, shard) in SHARDS.iter().enumerate() {
        assert!(!master.query("SELECT * FROM shard_cleanup($1)", &[shard]).unwrap().is_empty());
        let mut shard = stage.on(side).unwrap();
        stage.look(&mut shard, SHARDS[side]).unwrap();
        // The tables with the master and its last decisions stay until the shard is dropped.
        let left = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('shardmaster_agent') AND relkind = 'r'
                       AND relname NOT IN ('master', 'decision')";
        assert_eq!(shard.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    }
}

/// The master's own database is reached over its own socket, and no part of its name leads elsewhere.
/// Settings are texts as well.
#[test]
fn a_database_is_one_whatever_it_is_called() {
    const NAME: &str = "host=/nowhere dbname='x";
    let config = [
        "shared_preload_libraries = 'shardmaster'",
        "shardmaster.database = 'host=/nowhere dbname=''x'",
        "shardmaster.local_user = 'a''; CREATE TABLE pwned_1(); --'",
        "shardmaster.worker_id = 'a''; CREATE TABLE pwned_1(); --'",
        "shardmaster.snowflake_epoch = '2024-01-01''; CREATE TABLE pwned_1(); --'",
        "shardmaster.fault = 'a''; CREATE TABLE pwned_1(); --=hold'",
        "fsync = off",
    ];
    let master = Server::start("master", &config).unwrap();
    let mut superuser = master.superuser("postgres").unwrap();
    superuser.batch_execute(&format!("CREATE DATABASE {}", ident(NAME))).unwrap();
    superuser.batch_execute(&format!("CREATE ROLE {} LOGIN SUPERUSER", ident(NAMES[0]))).unwrap();
    let mut client = master.superuser(NAME).unwrap();
    client
        .batch_execute(
            "CREATE EXTENSION shardmaster; CREATE SCHEMA a; CREATE SCHEMA b;
             CREATE TABLE a.items (tenant text PRIMARY KEY); CREATE TABLE b.items (tenant text PRIMARY KEY);
             INSERT INTO a.items VALUES ('moves');
             SELECT shard_add('a', namespace => 'a'), shard_add('b', namespace => 'b');
             SELECT shard_table_add('items', 'tenant'); SELECT shard_assign('moves', 'a');
             SELECT shard_split_plan('a', 'b', ARRAY['moves'])",
        )
        .unwrap();
    client.batch_execute("SET statement_timeout = '60s'").unwrap();
    client.batch_execute("CALL shard_split_run(1, 'finished')").unwrap();
    let moved = "SELECT (SELECT count(*) FROM a.items) = 0 AND (SELECT count(*) FROM b.items) = 1";
    assert!(client.query_one(moved, &[]).unwrap().get::<_, bool>(0));
    let error = client.batch_execute("SELECT shard_snowflake_id()").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22023", "{error}");
    let made = "SELECT count(*) FROM pg_class WHERE relname ~ '^pwned'";
    assert_eq!(client.query_one(made, &[]).unwrap().get::<_, i64>(0), 0);
}

fn fallible(heard: &mut postgres::notifications::Iter<'_>) -> Result<Option<String>, postgres::Error> {
    use postgres::fallible_iterator::FallibleIterator;
    Ok(heard.next()?.map(|notification| notification.payload().to_owned()))
}
