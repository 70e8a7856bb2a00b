//! Chunks are copied at the same time, and one of several sessions is lost, or a server has no room for all of them.

use shardmaster_tests::cluster::{CLIENT, DATABASE};
use shardmaster_tests::copy_streams::{
    TABLE, busy_writers, fill, stage, to_backfill, to_dual_write, wait_until_they_end,
};
use shardmaster_tests::fixture::{
    LIMIT, by_superuser, by_superusers, cut_over_and_compare, plan, rows, source, state_of,
};
use shardmaster_tests::random::Random;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Returns how many workers the split has had.
fn generation(split: &Split<'_>) -> i64 {
    let query = "SELECT generation FROM shardmaster.split_plan WHERE id = $1";
    split.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0)
}

/// The step's session ends while a stream waits for its lock. The stream has nothing to read then, and
/// another worker starts again.
#[test]
#[ignore = "make test-all: one session of several; make test has split::streams::a_worker_that_ends_goes_on"]
fn a_snapshot_that_is_gone_is_taken_again() {
    let cluster = stage(TABLE, 3, &[]);
    fill(&cluster, [1001, 50000]);
    let split = plan(&cluster);
    // The very first step copies alone.
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    cluster.hold("step_snapshot").unwrap();
    split.wait_held("step_snapshot", LIMIT).unwrap();
    let before = generation(&split);
    // Of the readers, this is the one in a transaction.
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % reader' AND xact_start IS NOT NULL";
    let reader: i32 = source(&cluster).query_one(query, &[]).unwrap().get(0);
    let waits = |count: usize, then: &str| {
        format!(
            "DO $$ BEGIN
                 WHILE clock_timestamp() < now() + interval '20 s' AND (SELECT count(*) FROM pg_locks WHERE relation = 'items'::regclass AND NOT granted) < {count} LOOP
                     PERFORM pg_sleep(0.001);
                 END LOOP;
                 {then};
             END $$"
        )
    };
    let locker = {
        let config = cluster.servers[0].config(DATABASE, "postgres");
        std::thread::spawn(move || {
            let mut session = config.connect(postgres::NoTls).unwrap();
            session.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; COMMIT").unwrap();
        })
    };
    source(&cluster).batch_execute(&waits(1, "NULL")).unwrap();
    let ender = {
        let mut session = source(&cluster);
        let ends = waits(2, &format!("PERFORM pg_terminate_backend({reader})"));
        std::thread::spawn(move || session.batch_execute(&ends).unwrap())
    };
    cluster.fault("").unwrap();
    ender.join().unwrap();
    locker.join().unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    assert_eq!(generation(&split), before + 1);
    cut_over_and_compare(&cluster, &split);
}

/// Every stream locks every partition. If a server's lock table is full, fewer streams copy.
#[test]
#[ignore = "make test-all: a server's own limit; make test has split::stream_locks::for_want_of_locks_there_are_fewer_which_is_said"]
fn a_table_of_locks_that_is_full_gets_fewer_streams() {
    let leaf = |n: i32| {
        format!(
            "CREATE TABLE items_{n} PARTITION OF items FOR VALUES FROM ({}) TO ({})",
            n * 300,
            (n + 1) * 300
        )
    };
    let leaves: Vec<String> = (0..200).map(leaf).collect();
    let table = format!("{TABLE} PARTITION BY RANGE (id); {}", leaves.join("; "));
    let few = ["max_locks_per_transaction = 10", "max_connections = 40"];
    let cluster = stage(&table, 16, &few);
    fill(&cluster, [1001, 7000]);
    let split = plan(&cluster);
    to_backfill(&split);
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Each of several streams has room for a row of the maximum length.
#[test]
#[ignore = "make test-all: several long rows; make test has split::long_rows::a_worker_takes_twice_the_longest_row"]
fn long_rows_go_over_at_the_same_time() {
    let leaf = |n: i32| {
        format!(
            "CREATE TABLE items_{n} PARTITION OF items FOR VALUES FROM ({}) TO ({})",
            n * 1000,
            (n + 1) * 1000
        )
    };
    let leaves: Vec<String> = (0..5).map(leaf).collect();
    let table = format!("{TABLE} PARTITION BY RANGE (id); {}", leaves.join("; "));
    let cluster = stage(&table, 3, &["shardmaster.max_row_size = '250MB'"]);
    for n in 1..5 {
        fill(&cluster, [n * 1000 + 1, n * 1000 + 300]);
    }
    source(&cluster)
        .batch_execute("UPDATE items SET val = repeat('x', 240 << 20) WHERE id IN (1009, 2009, 3009) AND tenant = 'moves'")
        .unwrap();
    let split = plan(&cluster);
    to_backfill(&split);
    split.wait("cutover_pending", LIMIT).unwrap();
    source(&cluster).batch_execute("UPDATE items SET val = 'short' WHERE length(val) > 10000").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// The split waits for a row that another transaction is writing as long as a step alone would.
#[test]
#[ignore = "make test-all: rows of others in the way; make test has split::streams::a_worker_that_ends_goes_on"]
fn streams_wait_for_rows_as_long_as_a_step() {
    let cluster = stage(TABLE, 3, &[]);
    fill(&cluster, [1001, 25000]);
    let split = plan(&cluster);
    to_dual_write(&split);
    by_superuser(&cluster, 1, "CREATE UNIQUE INDEX codes ON items (code)");
    cluster.hold("streams_begun").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("streams_begun", LIMIT).unwrap();
    let before = generation(&split);
    let mut other = cluster.servers[1].superuser(DATABASE).unwrap();
    // The row has a value of the second chunk.
    other.batch_execute("BEGIN; INSERT INTO items VALUES ('stays', 1, 'x', 12001)").unwrap();
    cluster.fault("").unwrap();
    std::thread::sleep(Duration::from_millis(900));
    other.batch_execute("ROLLBACK").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    assert_eq!(generation(&split), before);
    cut_over_and_compare(&cluster, &split);
}

/// If fewer streams are configured, the other sessions are closed.
#[test]
#[ignore = "make test-all: a setting that changes; make test has split::stream_locks::for_want_of_locks_there_are_fewer_which_is_said"]
fn fewer_streams_have_fewer_sessions() {
    let cluster = stage(TABLE, 4, &[]);
    fill(&cluster, [1001, 50000]);
    let split = plan(&cluster);
    cluster.hold("stream_committed").unwrap();
    to_backfill(&split);
    split.wait_held("stream_committed", LIMIT).unwrap();
    cluster.set("shardmaster.copy_streams", "1").unwrap();
    cluster.hold("step_durable").unwrap();
    split.wait_held("step_durable", LIMIT).unwrap();
    let copied = rows(&cluster, 1).len();
    assert!(copied > 0 && copied < 40_000, "{copied}");
    wait_until_they_end(&cluster);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// No stream waits behind a session that waits for the target's tables when a step commits. The step would
/// take its locks again after that session, while its streams keep it waiting.
#[test]
#[ignore = "make test-all: the target's side; make test has split::stream_locks::nobody_comes_to_a_table_of_a_round_between_its_locks"]
fn whoever_waits_for_the_target_comes_first() {
    let cluster = stage(TABLE, 3, &[]);
    fill(&cluster, [1001, 25000]);
    let split = plan(&cluster);
    to_dual_write(&split);
    cluster.hold("streams_begun").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("streams_begun", LIMIT).unwrap();
    let before = generation(&split);
    let config = cluster.servers[1].config(DATABASE, "postgres");
    let locker = std::thread::spawn(move || {
        let mut session = config.connect(postgres::NoTls).unwrap();
        session.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; COMMIT").unwrap();
    });
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'items'::regclass AND NOT granted";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    wait::until_true(&mut target, "somebody to wait for the table", LIMIT, waits).unwrap();
    // The round is aborted, and the next step copies alone. The next round comes only after that.
    cluster.hold("step_durable").unwrap();
    split.wait_held("step_durable", LIMIT).unwrap();
    locker.join().unwrap();
    assert_eq!(busy_writers(&cluster), 1);
    cluster.hold("streams_copied").unwrap();
    split.wait_held("streams_copied", LIMIT).unwrap();
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    assert_eq!(generation(&split), before);
    cut_over_and_compare(&cluster, &split);
}

const REFERENCED: &str = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant),
         UNIQUE (code, tenant) DEFERRABLE INITIALLY DEFERRED, EXCLUDE USING gist (int4range(code, code + 1) WITH &&));
     CREATE TABLE notes (tenant text, id int, item int, PRIMARY KEY (tenant, id),
         FOREIGN KEY (item, tenant) REFERENCES items (id, tenant) ON DELETE CASCADE)";

/// Returns changes of rows that reference another chunk, of values that two rows exchange, and of rows that
/// move between blocks.
fn exchange(random: &mut Random) -> String {
    let [one, other] = [(); 2].map(|()| 1001 + random.below(20_000));
    let of = |id: usize| format!("tenant = 'moves' AND id = {id}");
    match random.below(4) {
        0 => format!("UPDATE items SET val = repeat('y', 1100) WHERE {}", of(one)),
        1 => format!("DELETE FROM items WHERE {}", of(one)),
        2 => format!(
            "UPDATE notes SET item = {other} WHERE {} AND EXISTS (SELECT FROM items WHERE {})",
            of(one),
            of(other)
        ),
        _ => format!(
            "BEGIN;
             UPDATE items SET code = -code WHERE {};
             UPDATE items SET code = {one} WHERE {};
             UPDATE items SET code = {other} WHERE {};
             COMMIT",
            of(one),
            of(other),
            of(one)
        ),
    }
}

/// Tables reference each other and have more constraints than a key, while clients write.
#[test]
#[ignore = "make test-all: what tables promise; make test has split::streams::a_worker_that_ends_goes_on"]
fn what_tables_promise_holds_of_streams() {
    let cluster = stage(REFERENCED, 4, &[]);
    by_superusers(&cluster, "GRANT SELECT, INSERT, UPDATE, DELETE ON notes TO PUBLIC; DELETE FROM items");
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('notes', 'tenant')").unwrap();
    fill(&cluster, [1001, 21000]);
    source(&cluster)
        .batch_execute("INSERT INTO notes SELECT tenant, id, id FROM items; ANALYZE notes")
        .unwrap();
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    let (stop, config) = (Arc::new(AtomicBool::new(false)), cluster.servers[0].config(DATABASE, CLIENT));
    let is_over = stop.clone();
    let writer = std::thread::spawn(move || {
        let (mut random, mut client, mut done) =
            (Random::new(1), config.connect(postgres::NoTls).unwrap(), 0);
        while !is_over.load(Ordering::Relaxed) {
            wait::rest();
            match client.batch_execute(&exchange(&mut random)) {
                Ok(()) => done += 1,
                Err(error) if state_of(&error) == "SM001" => break,
                Err(_) => client.batch_execute("ROLLBACK").unwrap(),
            }
        }
        done
    });
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 0);
    let notes = |server: usize| -> Vec<(i32, i32)> {
        let query = "SELECT id, item FROM notes WHERE tenant = 'moves' ORDER BY id";
        let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(query, &[]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    assert_eq!((rows(&cluster, 0), notes(0)), (rows(&cluster, 1), notes(1)));
    split.finish(LIMIT).unwrap();
}
