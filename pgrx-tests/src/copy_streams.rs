//! A table of many small chunks, which several streams copy at the same time.

use crate::cluster::{Cluster, DATABASE};
use crate::fixture::{LIMIT, cluster_of, source};
use crate::split::Split;
use crate::wait;

pub const TABLE: &str =
    "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant))";

/// Makes two servers with the table, and a master with `streams` streams and short steps.
pub fn stage(table: &str, streams: usize, more: &[&str]) -> Cluster {
    let streams = format!("shardmaster.copy_streams = {streams}");
    let mut lines = vec![&*streams, "shardmaster.step_time = '20ms'", "shardmaster.copy_share = 100"];
    lines.extend_from_slice(more);
    cluster_of(&lines, table)
}

/// Inserts rows with the ids from first to last. Seven rows fill a block.
pub fn fill(cluster: &Cluster, ids: [i32; 2]) {
    let [first, last] = ids;
    source(cluster)
        .batch_execute(&format!(
            "INSERT INTO items SELECT CASE i % 8 WHEN 0 THEN 'another' ELSE 'moves' END, i, repeat('x', 1050) || i, i
               FROM generate_series({first}, {last}) i; ANALYZE items"
        ))
        .unwrap();
}

pub fn to_dual_write(split: &Split<'_>) {
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
}

pub fn to_backfill(split: &Split<'_>) {
    to_dual_write(split);
    split.call("run_backfill").unwrap();
}

/// Counts the writers' sessions of the mover on the target.
pub fn writers(cluster: &Cluster) -> i64 {
    count(cluster, "true")
}

/// Counts the writers' sessions that are in a transaction.
pub fn busy_writers(cluster: &Cluster) -> i64 {
    count(cluster, "xact_start IS NOT NULL")
}

fn count(cluster: &Cluster, which: &str) -> i64 {
    let query = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % writer' AND {which}"
    );
    cluster.servers[1].superuser(DATABASE).unwrap().query_one(&query, &[]).unwrap().get(0)
}

/// Waits until the streams have ended, which nothing after them needs.
pub fn wait_until_they_end(cluster: &Cluster) {
    wait::until("the streams to end", LIMIT, || Ok((writers(cluster) == 1).then_some(()))).unwrap();
}
