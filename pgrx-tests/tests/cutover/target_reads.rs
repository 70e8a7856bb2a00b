//! Reads that go to a split's target before its cutover.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{
    LIMIT, by_superuser, by_superusers, cluster, cut_over_and_compare, insert, outcome, plan, rows, state_of,
    to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn switch(split: &Split<'_>, to_target: bool) -> Result<(), postgres::Error> {
    let call = format!("SELECT shard_split_switch_reads({}, {to_target})", split.id);
    split.superuser().unwrap().batch_execute(&call)
}

/// Returns where the moving key is read and written, and what the metrics show.
fn places(cluster: &Cluster, split: &Split<'_>) -> [String; 3] {
    let query = "SELECT shard_of('moves', 'read'), shard_of('moves'),
                        (SELECT coalesce(reads_on, 'none') FROM shard_split_metrics($1))";
    let row = cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap();
    [0, 1, 2].map(|column| row.get(column))
}

fn client(cluster: &Cluster, server: usize) -> Client {
    cluster.servers[server].connect(DATABASE, CLIENT).unwrap()
}

fn number(client: &mut Client, query: &str) -> i64 {
    client.query_one(query, &[]).unwrap().get(0)
}

#[test]
fn reads_go_to_the_target_and_back() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    assert_eq!(state_of(&switch(&split, true).unwrap_err()), "55000");
    switch(&split, false).unwrap();
    to_pending(&split);
    // A session that caches its routes learns of each change.
    let mut keeps = cluster.superuser().unwrap();
    let mut reads = || keeps.query_one("SELECT shard_of('moves', 'read')", &[]).unwrap().get::<_, String>(0);
    assert_eq!(reads(), "shard_a");
    for _ in 0..2 {
        switch(&split, true).unwrap();
        assert_eq!(reads(), "shard_b");
        assert_eq!(places(&cluster, &split), ["shard_b", "shard_a", "shard_b"]);
    }
    // A client that reads there sees rows as old as the lag, which the metrics show.
    let newest = "SELECT count(*) FROM items WHERE tenant = 'moves' AND id = 70000";
    cluster.fault("step_begin=hold").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    assert_eq!(outcome(&mut client(&cluster, 0), &insert("moves", 70_000)), "ok");
    assert_eq!(number(&mut client(&cluster, 1), newest), 0);
    assert_eq!(split.metric::<Option<i64>>("lag_rows").unwrap(), Some(1));
    cluster.fault("").unwrap();
    wait::until("the row on the target", LIMIT, || {
        Ok((number(&mut client(&cluster, 1), newest) == 1).then_some(()))
    })
    .unwrap();
    switch(&split, false).unwrap();
    assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
    switch(&split, true).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(places(&cluster, &split), ["shard_b", "shard_b", "shard_b"]);
    assert_eq!(state_of(&switch(&split, true).unwrap_err()), "55000");
    split.finish(LIMIT).unwrap();
    assert_eq!(places(&cluster, &split), ["shard_b", "shard_b", "none"]);
    let events = split.events().unwrap();
    assert_eq!(events.matches("reads go to shard_b").count(), 2, "{events}");
    assert_eq!(events.matches("reads go to shard_a").count(), 1, "{events}");
}

/// Stops a thread that polls this flag, even if the owner panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts how often a client that was routed to the target has read all of its rows, until it is stopped. The
/// route is checked before and after the read.
fn read_until(cluster: &Cluster, expected: i64, stop: &AtomicBool, found: &AtomicUsize) {
    let (mut master, mut target) = (cluster.superuser().unwrap(), client(cluster, 1));
    let mut is_sent_there =
        || -> bool { master.query_one("SELECT shard_of('moves', 'read') = 'shard_b'", &[]).unwrap().get(0) };
    while !stop.load(Ordering::Relaxed) {
        let before = is_sent_there();
        let rows = number(&mut target, "SELECT count(*) FROM items WHERE tenant = 'moves'");
        if before && is_sent_there() {
            assert_eq!(rows, expected);
            found.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn nobody_reads_where_rows_are_copied_again() {
    let cluster = cluster(&["shardmaster.tail_interval = 20"]);
    let split = plan(&cluster);
    to_pending(&split);
    let expected = i64::try_from(rows(&cluster, 0).len()).unwrap();
    let (stop, found) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let reader = scope.spawn(|| read_until(&cluster, expected, &stop, &found));
        for round in 1..=2 {
            switch(&split, true).unwrap();
            let before = found.load(Ordering::Relaxed);
            wait::until("reads of the target", LIMIT, || {
                Ok((reader.is_finished() || found.load(Ordering::Relaxed) > before + 3).then_some(()))
            })
            .unwrap();
            // The target's rows are gone, and no new ones arrive until the copy may continue.
            cluster.set("shardmaster.throttle_query", "SELECT 'not now'").unwrap();
            by_superuser(&cluster, 0, "VACUUM FULL items");
            wait::until("a target without rows", LIMIT, || Ok(rows(&cluster, 1).is_empty().then_some(())))
                .unwrap();
            assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
            cluster.set("shardmaster.throttle_query", "").unwrap();
            wait::until("the copy", LIMIT, || Ok((rows(&cluster, 1).len() == 300).then_some(()))).unwrap();
            split.wait("cutover_pending", LIMIT).unwrap();
            assert!(!reader.is_finished(), "the reader has not found every row");
            let events = split.events().unwrap();
            assert_eq!(
                events.matches("reads go to shard_a: rows are copied again").count(),
                round,
                "{events}"
            );
        }
    });
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: a rollback; make test has reads_go_to_the_target_and_back"]
fn a_rollback_brings_reads_back_before_rows_go() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    switch(&split, true).unwrap();
    cluster.fault("rollback_begin=hold").unwrap();
    split.call("rollback").unwrap();
    assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
    split.wait_held("rollback_begin", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 1), rows(&cluster, 0));
    cluster.fault("").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    assert_eq!(state_of(&switch(&split, true).unwrap_err()), "55000");
}

#[test]
#[ignore = "make test-all: a failure; make test has reads_go_to_the_target_and_back"]
fn a_split_that_fails_sends_its_readers_home() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    switch(&split, true).unwrap();
    by_superuser(&cluster, 0, "ALTER TABLE items DISABLE TRIGGER USER");
    split.failure(LIMIT).unwrap();
    assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
    assert_eq!(state_of(&switch(&split, true).unwrap_err()), "55000");
    by_superuser(&cluster, 0, "ALTER TABLE items ENABLE TRIGGER USER");
    split.call("resume").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
}

#[test]
#[ignore = "make test-all: ranges; make test has reads_go_to_the_target_and_back"]
fn ranges_are_read_on_the_target() {
    let cluster = cluster(&[]);
    by_superusers(
        &cluster,
        &format!(
            "CREATE TABLE docs (path text COLLATE \"C\" PRIMARY KEY); ALTER TABLE docs OWNER TO {OWNER}"
        ),
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('docs', 'range', key_type => 'text');
             SELECT shard_table_add('docs', shard_by => 'path', keyspace => 'docs');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'docs')",
        )
        .unwrap();
    let query = "SELECT shard_split_plan_range('shard_a', 'shard_b', 'f', 'm', keyspace => 'docs')";
    let split = Split::of(&cluster, master.query_one(query, &[]).unwrap().get(0));
    to_pending(&split);
    switch(&split, true).unwrap();
    let mut places = |intent: &str| -> Vec<String> {
        let query = "SELECT shard_of('apple', $1, 'docs'), shard_of('house', $1, 'docs'),
                            (SELECT string_agg(shard_key, ' ' ORDER BY lower NULLS FIRST) FROM shard_route_range('a', 'z', $1, 'docs'))";
        let row = master.query_one(query, &[&intent]).unwrap();
        (0..3).map(|column| row.get(column)).collect()
    };
    assert_eq!(places("read"), ["shard_a", "shard_b", "shard_a shard_b shard_a"]);
    assert_eq!(places("write"), ["shard_a", "shard_a", "shard_a shard_a shard_a"]);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(places("write"), ["shard_a", "shard_b", "shard_a shard_b shard_a"]);
}

/// The table of a full queue is copied again completely.
#[test]
#[ignore = "make test-all: a full queue; make test has nobody_reads_where_rows_are_copied_again"]
fn nobody_reads_where_a_queue_was_full() {
    let cluster = cluster(&["shardmaster.queue_max_size = 1"]);
    let split = plan(&cluster);
    to_pending(&split);
    switch(&split, true).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    for _ in 0..120 {
        by_superuser(&cluster, 0, "UPDATE items SET val = val || '!' WHERE tenant = 'moves'");
    }
    cluster.hold("overflow_reset").unwrap();
    split.wait_held("overflow_reset", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    assert_eq!(places(&cluster, &split), ["shard_a", "shard_a", "shard_a"]);
    cluster.fault("").unwrap();
    wait::until("the copy", LIMIT, || Ok((rows(&cluster, 1) == rows(&cluster, 0)).then_some(()))).unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}
