//! Queries of exporters on a master, and the alerts that are made from their results.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{self, LIMIT, by_owner, completed, to_pending};
use shardmaster_tests::prometheus::{ALERTS, DASHBOARD, Prometheus, QUERIES, SQL_QUERIES};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::process::Command;

const TABLE: &str = "CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id))";
const SHARDS: &str = "SELECT shard_table_add('items', 'tenant'); SELECT shard_keyspace_add('others', 'directory');
    SELECT shard_table_add('others', 'tenant', 'others'), shard_assign('lost', 'shard_a', 'others');
    SELECT shard_assign_many(ARRAY['behind', 'fenced', 'waits'], 'shard_a'), shard_assign('silent', 'shard_c');
    CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor;
    SELECT shard_add('gpu_1', kind => 'gpu', capacity => 1); SELECT shard_reserve_slot('gpu', 'model', 'somebody', '1 s');
    SELECT shard_add('tpu_1', kind => 'tpu', capacity => 1); SELECT shard_reserve_slot('tpu', 'model', 'somebody', '1 h')";

/// Makes three workers for four splits. One is paused with a queue that is nearly full, one keeps its writers
/// waiting, one has lost its source, and one waits for a worker. A fifth one has failed.
fn trouble(cluster: &mut Cluster) {
    for server in 0..3 {
        by_owner(cluster, server, TABLE);
    }
    by_owner(cluster, 0, "CREATE TABLE others (LIKE items INCLUDING ALL)");
    by_owner(
        cluster,
        0,
        "INSERT INTO items SELECT t, 1, 'row' FROM unnest('{behind,fenced,waits}'::text[]) t",
    );
    let pid = sweeper(cluster);
    signal("-STOP", pid);
    cluster.superuser().unwrap().batch_execute(SHARDS).unwrap();

    let behind = Split::plan(cluster, "shard_a", "shard_b", &["behind"]).unwrap();
    to_pending(&behind);
    behind.call("pause").unwrap();
    let grows = "INSERT INTO items SELECT 'behind', i, repeat('x', 1000) FROM generate_series(2, 100) i ON CONFLICT (tenant, id) DO UPDATE SET val = excluded.val || 'x'";
    wait::until("the queue to be nearly full", LIMIT, || {
        by_owner(cluster, 0, grows);
        Ok(behind.metric::<bool>("queue_bytes > 0.85 * queue_limit").unwrap().then_some(()))
    })
    .unwrap();
    let lost = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY['lost'], keyspace => 'others')";
    let lost = Split::plan_by(cluster, lost).unwrap();
    lost.call("start_dual_write").unwrap();
    lost.failure(LIMIT).unwrap();
    cluster.hold("cutover_sequences").unwrap();
    let fenced = Split::plan(cluster, "shard_a", "shard_b", &["fenced"]).unwrap();
    to_pending(&fenced);
    fenced.call("cutover").unwrap();
    fenced.wait_held("cutover_sequences", LIMIT).unwrap();
    let silent = Split::plan(cluster, "shard_c", "shard_b", &["silent"]).unwrap().id;
    cluster.servers[2].stop(Stop::Immediate).unwrap();
    Split::of(cluster, silent).call("start_dual_write").unwrap();
    Split::plan(cluster, "shard_a", "shard_b", &["waits"]).unwrap().call("start_dual_write").unwrap();
}

fn sweeper(cluster: &Cluster) -> i32 {
    let pid = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'shardmaster lease expirer'";
    let mut master = cluster.superuser().unwrap();
    wait::until("the sweeper", LIMIT, || Ok(master.query_opt(pid, &[])?.map(|row| row.get(0)))).unwrap()
}

fn signal(signal: &str, pid: i32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn every_alert_fires() {
    let mut cluster = Cluster::servers(
        3,
        &[
            "fsync = off",
            "shardmaster.max_split_workers = 3",
            "shardmaster.queue_max_size = 1MB",
            "shardmaster.lease_sweep_interval = 100ms",
            // The cutover may take as long as the test.
            "shardmaster.cutover_timeout = 1h",
        ],
    )
    .unwrap();
    trouble(&mut cluster);
    let prometheus = Prometheus::start(&cluster.master, DATABASE, "monitor").unwrap();
    let mut left: Vec<&str> =
        ALERTS.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    assert!(left.len() > 8);
    let last = "ShardmasterNotRunning";
    for alert in left.extract_if(.., |alert| *alert != last) {
        // This alert is about all shards of a kind, so it belongs to no single exporter.
        let jobs =
            if alert == "ShardmasterNoCapacity" { vec![None] } else { vec![Some("postgres"), Some("sql")] };
        for job in jobs {
            prometheus.wait_firing(alert, job).unwrap();
        }
    }
    each_panel_shows_something(&prometheus);
    // If all splits may have workers, none waits for one, and the server has no room for so many.
    cluster.set("shardmaster.max_split_workers", "60").unwrap();
    prometheus.wait_firing(last, Some("postgres")).unwrap();
    prometheus.wait_firing(last, Some("sql")).unwrap();
    signal("-CONT", sweeper(&cluster));
}

/// The dashboard only uses metrics that an exporter has.
fn each_panel_shows_something(prometheus: &Prometheus) {
    let asked =
        DASHBOARD.lines().filter_map(|line| line.trim().strip_prefix("\"expr\": \"")?.strip_suffix("\","));
    let asked: Vec<&str> = asked.collect();
    assert!(asked.len() > 10);
    for expression in asked {
        let answer = prometheus.ask(expression).unwrap();
        assert!(answer.contains("\"success\"") && answer.contains("\"value\":["), "{expression}: {answer}");
    }
}

/// There are two files because each exporter has its own format, but both have the same queries.
#[test]
fn both_exporters_ask_the_same() {
    let questions = |file: &str| -> String {
        let is_of_query =
            |line: &&str| ["SELECT ", " AS ", "FROM ", " AND "].iter().any(|word| line.contains(word));
        let plain = |line: &str| {
            let text = line.trim().trim_start_matches("query: ").trim_matches('"');
            text.to_owned() + "\n"
        };
        file.lines().filter(is_of_query).map(plain).collect()
    };
    assert!(questions(QUERIES).lines().count() > 12);
    assert_eq!(questions(QUERIES), questions(SQL_QUERIES));
}

/// Returns the query of one metric's file as the exporter sends it.
fn question(name: &str) -> String {
    let of_name = QUERIES.split(&format!("\n{name}:\n  query: |\n")).nth(1).unwrap();
    of_name.split("\n  metrics:").next().unwrap().to_owned()
}

/// A reverse split that was not requested cannot be behind, and a shard that accepts nothing has no slots.
#[test]
#[ignore = "make test-all: what is in no figure; make test has every_alert_fires"]
fn what_cannot_help_or_needs_nobody_is_in_no_figure() {
    let cluster = fixture::cluster(&[]);
    let split = completed(&cluster);
    let mut master = cluster.superuser().unwrap();
    let splits = |master: &mut postgres::Client| -> Vec<String> {
        let rows = master.query(&question("shardmaster_split"), &[]).unwrap();
        rows.iter().map(|row| row.get("split_id")).collect()
    };
    assert_eq!(splits(&mut master), [split.id.to_string()]);
    // Once it is requested, it is counted.
    cluster.hold("reverse_captured").unwrap();
    master.batch_execute(&format!("SELECT shard_split_reverse({})", split.id)).unwrap();
    wait::until("the reverse split to be a figure", LIMIT, || {
        Ok((splits(&mut master).len() == 2).then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    master
        .batch_execute(
            "SELECT shard_add(s, kind => 'gpu', capacity => 5) FROM unnest('{one,two,three}'::text[]) s;
             SELECT shard_set_status('one', 'disabled'), shard_set_status('two', 'draining')",
        )
        .unwrap();
    let shards = master.query(&question("shardmaster_shard"), &[]).unwrap();
    let mut slots: Vec<(String, f64)> = shards
        .iter()
        .filter(|row| row.get::<_, &str>("kind") == "gpu")
        .map(|row| (row.get("shard"), row.get("available_slots")))
        .collect();
    slots.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(slots, [("one".into(), 0.0), ("three".into(), 5.0), ("two".into(), 0.0)]);
}
