//! Rows as long as somebody likes: what a worker takes for one is bounded and known.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, cluster, plan, source, to_pending};
use shardmaster_tests::wait;

const MB: u64 = 1 << 20;
/// Of a worker that has moved short rows alone.
const USUAL: u64 = 80 * MB;

/// A column for long values; one row of the tenant that moves has one.
fn lengthen(cluster: &Cluster, megabytes: usize) {
    for server in &cluster.servers {
        server
            .superuser(DATABASE)
            .unwrap()
            .batch_execute(
                "ALTER TABLE items ADD body bytea; ALTER TABLE items ALTER body SET STORAGE EXTERNAL",
            )
            .unwrap();
    }
    let update = format!(
        "UPDATE items SET body = convert_to(repeat('x', {megabytes} << 20), 'UTF8') WHERE tenant = 'moves' AND id = 2"
    );
    source(cluster).batch_execute(&update).unwrap();
}

/// What libpq keeps of it, and the copy that it gives away.
#[test]
fn a_worker_takes_twice_the_longest_row() {
    const LONG: usize = 200;
    const MOST: u64 = 2 * LONG as u64 * MB + USUAL;
    let cluster = cluster(&[]);
    lengthen(&cluster, LONG);
    let split = plan(&cluster);
    to_pending(&split);
    let most = split.worker_memory().unwrap().unwrap();
    assert!(most < MOST, "{} MB", most / MB);
    // The same in a window.
    source(&cluster)
        .batch_execute("UPDATE items SET val = 'long' WHERE tenant = 'moves' AND id = 2")
        .unwrap();
    let query = "SELECT length(body) FROM items WHERE val = 'long'";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let length = wait::until("the row to come over", LIMIT, || {
        Ok(target.query_opt(query, &[])?.map(|row| row.get::<_, i32>(0)))
    });
    assert_eq!(length.unwrap(), 200 << 20);
    let most = split.worker_memory().unwrap().unwrap();
    assert!(most < MOST, "{} MB", most / MB);
}

/// It stops the split with its table, before much more of it has come than one may have.
#[test]
fn a_row_beyond_the_limit_stops_the_split() {
    for megabytes in [3, 400] {
        let cluster = cluster(&["shardmaster.max_row_size = '2MB'"]);
        lengthen(&cluster, megabytes);
        let split = plan(&cluster);
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
        let mut most = 0;
        wait::until("the split to fail", LIMIT, || {
            most = most.max(split.worker_memory()?.unwrap_or(0));
            Ok((split.metric::<String>("activity")? == "failed").then_some(()))
        })
        .unwrap();
        assert!(most > 0 && most < USUAL + 100 * MB, "{} MB", most / MB);
        let query = "SELECT error_code, error_message, error_hint FROM shardmaster.split_plan WHERE reverse_of IS NULL";
        let row = split.superuser().unwrap().query_one(query, &[]).unwrap();
        let [code, message, hint]: [String; 3] = [0, 1, 2].map(|column| row.get(column));
        assert_eq!(code, "SM007", "{message}");
        assert!(message.contains("a row of more than 2 MB in table public.items"), "{message}");
        assert!(hint.contains("shardmaster.max_row_size"), "{hint}");
        cluster.set("shardmaster.max_row_size", "512MB").unwrap();
        split.call("run_backfill").unwrap();
        split.wait("cutover_pending", LIMIT).unwrap();
    }
}
