//! The messages to the shards while writers wait in a cutover. Each of them is a round trip.

use shardmaster_tests::cluster::{CLIENT, Cluster};
use shardmaster_tests::fixture::{LIMIT, client, cluster_of, plan, to_pending};
use shardmaster_tests::split::Split;

const TABLES: &str = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id))";

/// The limit of messages to both shards, by session, from the moment when nobody is routed there any more
/// until writers continue. A worker that was held up also sends `SELECT 1` to both. The worker waits for
/// eight answers. Other messages are sent at the same time, such as the dropping of queue entries while the
/// target is opened.
const MOST: usize = 15;

fn with_tables(count: usize) -> Cluster {
    let others: String = (1..count)
        .map(|n| format!("; CREATE TABLE t{n} (LIKE items INCLUDING ALL); GRANT ALL ON t{n} TO {CLIENT}"))
        .collect();
    let cluster = cluster_of(&["log_statement = 'all'"], &format!("{TABLES}{others}"));
    let mut master = cluster.superuser().unwrap();
    for n in 1..count {
        client(&cluster).batch_execute(&format!("INSERT INTO t{n} SELECT * FROM items")).unwrap();
        master
            .batch_execute(&format!("SELECT shard_table_add('t{n}', 'tenant', key_type => 'text')"))
            .unwrap();
    }
    cluster
}

/// Returns the statements of the split's sessions, with their times, in order.
fn asked(cluster: &Cluster, from: &[usize]) -> Vec<String> {
    let mut lines = Vec::new();
    for (server, from) in cluster.servers.iter().zip(from) {
        let log = std::fs::read(server.log_path()).unwrap();
        let log = String::from_utf8_lossy(&log[*from..]).into_owned();
        let is_message = |line: &&str| line.contains("LOG:  statement:") || line.contains("LOG:  execute ");
        let mut of_server: Vec<String> = Vec::new();
        for line in log.lines() {
            if line.starts_with("20") {
                of_server.push(line.to_owned());
            } else if let Some(last) = of_server.last_mut() {
                *last += line;
            }
        }
        lines.extend(of_server.into_iter().filter(|line| {
            is_message(&line.as_str())
                && ["fence", "reader", "control", "writer"]
                    .iter()
                    .any(|name| line.contains(&format!("shardmaster split 1 {name} LOG")))
        }));
    }
    lines.sort();
    lines
}

/// Makes a last window with `rows` rows of each table, and returns the statements after the fence.
fn behind_the_fence(count: usize, rows: i64) -> Vec<String> {
    let cluster = with_tables(count);
    let split: Split<'_> = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_disabled").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_disabled", LIMIT).unwrap();
    let mut writer = client(&cluster);
    for table in (0..count).map(|n| if n == 0 { "items".to_owned() } else { format!("t{n}") }) {
        writer
            .batch_execute(&format!(
                "UPDATE {table} SET val = 'last' WHERE tenant = 'moves' AND id IN (SELECT id FROM {table} WHERE tenant = 'moves' LIMIT {rows})"
            ))
            .unwrap();
    }
    let lengths: Vec<usize> =
        cluster.servers.iter().map(|s| std::fs::metadata(s.log_path()).unwrap().len() as usize).collect();
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let all = asked(&cluster, &lengths);
    let until = all.iter().position(|line| line.contains("SAVEPOINT held")).expect("the fence lets go");
    all.into_iter()
        .take(until + 2)
        .filter(|line| !line.ends_with("statement: SELECT 1"))
        .map(|line| line.chars().take(300).collect())
        .collect()
}

#[test]
#[ignore = "make test-all: many tables; make test has split::round_trips::a_fence_is_a_few_ways_to_each_side"]
fn a_fence_costs_no_message_more_for_more_tables() {
    let (one, many) = (behind_the_fence(1, 1), behind_the_fence(6, 1));
    assert_eq!(one.len(), many.len(), "{}\n---\n{}", one.join("\n"), many.join("\n"));
    assert!(one.len() <= MOST, "{}", one.join("\n"));
    // Each COPY would be a wait of its own.
    let copied: Vec<&String> = many.iter().filter(|line| line.contains("FROM STDIN")).collect();
    assert!(copied.is_empty(), "{copied:?}");
}

/// Over a long line, many rows have changed since the last step.
#[test]
#[ignore = "make test-all: a long line; make test has split::round_trips::a_fence_is_a_few_ways_to_each_side"]
fn a_fence_costs_no_message_more_for_a_thousand_rows() {
    let (few, many) = (behind_the_fence(4, 1), behind_the_fence(4, 300));
    assert_eq!(few.len(), many.len(), "{}\n---\n{}", few.join("\n"), many.join("\n"));
    let copied: Vec<&String> = many.iter().filter(|line| line.contains("FROM STDIN")).collect();
    assert!(copied.is_empty(), "{copied:?}");
}
