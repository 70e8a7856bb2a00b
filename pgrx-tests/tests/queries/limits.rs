//! Queries over all shards end, whatever a shard does, and take no more memory than a row.

use shardmaster_tests::cluster::{DATABASE, MOVER};
use shardmaster_tests::fixture::{by_owner, by_superuser};
use shardmaster_tests::queries::{analyst, error, json, nobody_works_on, stage};
use std::time::Duration;

#[test]
fn a_shard_that_does_not_answer_is_named_in_time() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    let call = |query: &str, more: &str| format!("shard_query_json($q${query}$q${more})");
    // One shard has another schema.
    by_owner(&cluster, 1, "ALTER TABLE items RENAME COLUMN val TO value");
    let select = |text: String| format!("SELECT * FROM {text}");
    let (state, message) = error(&mut client, &select(call("SELECT val FROM items", "")));
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("42703", "shard \"shard_b\": column \"val\" does not exist")
    );
    let found = json(&mut client, &call("SELECT count(val) FROM items", ", on_error => 'report'"));
    assert_eq!(found[0], r#"{"count": 600}"#);
    assert!(
        found[1].starts_with(r#"{"shard_error": {"hint": "#) && found[1].contains(r#""shard": "shard_b""#),
        "{found:?}"
    );
    let reported = "SELECT n, shard_error ->> 'sqlstate' FROM shard_query('SELECT count(val) FROM items', on_error => 'report') AS t (n bigint, shard_error jsonb) ORDER BY 1";
    let rows = client.query(reported, &[]).unwrap();
    let rows: Vec<(Option<i64>, Option<String>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(Some(600), None), (None, Some("42703".to_owned()))]);
    assert_eq!(
        error(
            &mut client,
            &reported.replace("shard_error jsonb", "other jsonb").replace("shard_error", "other")
        )
        .0,
        "42804"
    );
    by_owner(&cluster, 1, "ALTER TABLE items RENAME COLUMN value TO val");
    // One shard hangs while it works, and one hangs before.
    let sleep = "SELECT CASE WHEN count(*) = 0 THEN pg_sleep(60) END FROM items";
    let began = std::time::Instant::now();
    let (state, message) = error(&mut client, &select(call(sleep, ", timeout => '2 s'")));
    assert_eq!((state.as_str(), message.as_str()), ("08006", "shard \"shard_b\": no answer within 2 s"));
    let found = json(&mut client, &call(sleep, ", timeout => '2 s', on_error => 'report'"));
    assert!(
        found.len() == 2
            && found[0].contains("case")
            && found[1].contains("no answer within 2 s")
            && found[1].contains("timeout =>"),
        "{found:?}"
    );
    cluster.servers[1].hang().unwrap();
    let (state, message) = error(&mut client, &select(call("SELECT 1", ", timeout => '2 s'")));
    assert_eq!((state.as_str(), message.as_str()), ("08006", "shard \"shard_b\": no answer within 2 s"));
    let found = json(&mut client, &call("SELECT 1", ", timeout => '2 s', on_error => 'report'"));
    assert!(found.len() == 2 && found.iter().any(|row| row.contains("no answer within 2 s")), "{found:?}");
    cluster.servers[1].wake().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    nobody_works_on(&cluster);
    // One shard is down.
    by_superuser(&cluster, 1, "ALTER ROLE reader NOLOGIN");
    assert_eq!(error(&mut client, &select(call("SELECT 1", ""))).0, "08006");
    by_superuser(&cluster, 1, "ALTER ROLE reader LOGIN");
}

/// A query goes on to the next host of a shard if one is silent, as a split does.
#[test]
fn a_silent_host_is_left_for_the_next_one() {
    let cluster = stage(&["shardmaster.remote_timeout = '1s'"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let socket = cluster.servers[1].socket_dir().display();
    let conninfo = format!("host=127.0.0.1,{socket} port={port},5432 dbname={DATABASE} user={MOVER}");
    let set = "SELECT shard_set_endpoint('shard_b', conninfo => $1)";
    cluster.superuser().unwrap().execute(set, &[&conninfo]).unwrap();
    let found =
        json(&mut analyst(&cluster), "shard_query_json('SELECT count(*) FROM items', timeout => '20 s')");
    assert_eq!(found, [r#"{"count": 0}"#, r#"{"count": 600}"#]);
}

#[test]
fn a_limit_and_a_cancel_end_it_everywhere() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    let endless = "SELECT i, pg_sleep(0.001) FROM generate_series(1, 1000000) i";
    let limited = format!("SELECT shard_query_json('{endless}') LIMIT 3");
    assert_eq!(client.query(&limited, &[]).unwrap().len(), 3);
    nobody_works_on(&cluster);
    for call in [
        format!("SELECT * FROM shard_query_json('{endless}')"),
        format!("SELECT * FROM shard_query('{endless}') AS t (i int, void text)"),
        "SELECT shard_query_json('SELECT pg_sleep(300)', timeout => '10 min')".to_owned(),
    ] {
        client.batch_execute("SET statement_timeout = '1500 ms'").unwrap();
        assert_eq!(error(&mut client, &call).0, "57014", "{call}");
        nobody_works_on(&cluster);
        client.batch_execute("RESET statement_timeout").unwrap();
    }
    assert_eq!(
        json(&mut client, "shard_query_json('SELECT count(*) FROM items')"),
        [r#"{"count": 0}"#, r#"{"count": 600}"#]
    );
    // A cursor fetches only as far as it is read.
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute(&format!("DECLARE c CURSOR FOR SELECT shard_query_json('{endless}')")).unwrap();
    assert_eq!(transaction.query("FETCH 5 FROM c", &[]).unwrap().len(), 5);
    transaction.batch_execute("CLOSE c").unwrap();
    nobody_works_on(&cluster);
    transaction.commit().unwrap();
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    client.batch_execute("SET work_mem = '4MB'").unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let status = |what: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Memory that is freed at the end counts as well: this is the peak.
    let before = status("VmRSS:");
    let rows = "SELECT i, repeat(''x'', 100) AS text FROM generate_series(1, 500000) i";
    for call in [
        format!("SELECT count(*) FROM shard_query('{rows}') AS t (i int, text text)"),
        format!("SELECT count(*) FROM (SELECT shard_query_json('{rows}')) t"),
    ] {
        assert_eq!(client.query_one(&call, &[]).unwrap().get::<_, i64>(0), 1_000_000);
        let most = status("VmHWM:");
        assert!(most < before + 48_000, "{call}: {before} kB before, {most} kB at most");
    }
}
