//! Both sides compared by several sessions at the same time: whatever is on them, the result is that of one session, and
//! whoever fails meanwhile changes nothing of it.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::fixture::{LIMIT, as_worker, by_superuser, cluster_of, plan, source};
use shardmaster_tests::split::Split;
use shardmaster_tests::strike::Strike;
use shardmaster_tests::verification::{Told, outcome, verify};
use shardmaster_tests::{fixture, wait};

/// Rows of which seven are in a block, of one table by ranges of its key and of a partitioned one by blocks.
const ROWS: i64 = 20_000;
/// Those of them that move, with the stage's own.
const MOVING: i64 = ROWS / 8 * 7 + 300;
const SMALL: i64 = 24;
const POINT: &str = "streams_compared";

fn stage(streams: usize) -> Cluster {
    let small: Vec<String> = (0..SMALL)
        .map(|n| {
            format!("CREATE TABLE small_{n:02} (tenant text, id int, val text, PRIMARY KEY (id, tenant))")
        })
        .collect();
    let leaf =
        |n| format!("CREATE TABLE parts_{n} PARTITION OF parts FOR VALUES WITH (modulus 5, remainder {n})");
    let leaves: Vec<String> = (0..5).map(leaf).collect();
    let tables = format!(
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant));
         CREATE TABLE parts (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY HASH (id);
         {}; {}",
        leaves.join("; "),
        small.join("; ")
    );
    let streams = format!("shardmaster.copy_streams = {streams}");
    let config = [&*streams, "shardmaster.step_time = '200ms'", "autovacuum = off"];
    let cluster = cluster_of(&config, &tables);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('parts', 'tenant')").unwrap();
    for n in 0..SMALL {
        master.execute("SELECT shard_table_add($1, 'tenant')", &[&format!("small_{n:02}")]).unwrap();
    }
    let rows = |table: &str| {
        format!(
            "INSERT INTO {table} SELECT CASE i % 8 WHEN 0 THEN 'another' ELSE 'moves' END, i, repeat('x', 1050) || i, i
               FROM generate_series(1001, {}) i",
            1000 + ROWS
        )
    };
    let few: Vec<String> = (0..SMALL)
        .map(|n| {
            format!("INSERT INTO small_{n:02} SELECT 'moves', i, i::text FROM generate_series(1, {n}) i")
        })
        .collect();
    by_superuser(&cluster, 0, &format!("{}; {}; {}", rows("items"), rows("parts"), few.join("; ")));
    by_superuser(&cluster, 1, &format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {CLIENT}, {OWNER}"));
    cluster
}

/// From here on little fits into a step, so that there are several.
fn to_pending(cluster: &Cluster, split: &Split<'_>) {
    fixture::to_pending(split);
    cluster.set("shardmaster.step_time", "20ms").unwrap();
}

/// What is told of each table, of which so many rows were compared.
fn all_passed() -> Vec<Told> {
    let passed =
        |rows| Told { status: "passed".into(), rows, differing: 0, key: String::new(), what: String::new() };
    [MOVING, MOVING - 300].into_iter().chain(0..SMALL).map(passed).collect()
}

/// Sessions of a purpose that are within a transaction.
fn at_work(cluster: &Cluster, server: usize, purpose: &str) -> i64 {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % ' || $1 AND xact_start IS NOT NULL";
    let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
    session.query_one(query, &[&purpose]).unwrap().get(0)
}

/// The keys that are kept of a table, with what differs.
fn differences(split: &Split<'_>) -> Vec<String> {
    let query = "SELECT concat_ws(' ', ordinal, key[1], what) FROM shardmaster.split_difference WHERE split_id = $1 ORDER BY 1";
    split.superuser().unwrap().query(query, &[&split.id]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn has_been_held(cluster: &Cluster, split: &Split<'_>) {
    cluster.hold(POINT).unwrap();
    split.call("verify").unwrap();
    split.wait_held(POINT, LIMIT).unwrap();
    assert_eq!([at_work(cluster, 0, "reader"), at_work(cluster, 1, "writer")], [3, 3]);
}

/// What differs is far apart, in ranges and blocks of several streams.
fn lose(cluster: &Cluster, split: &Split<'_>) {
    as_worker(cluster, split, 1)
        .batch_execute(
            "DELETE FROM items WHERE id = 1002; UPDATE items SET val = 'y' WHERE id IN (9001, 17001);
             DELETE FROM parts WHERE id IN (1009, 20009); UPDATE parts SET code = 0 WHERE id = 12001;
             DELETE FROM small_23 WHERE id = 3",
        )
        .unwrap();
}

#[test]
fn streams_find_what_one_session_finds() {
    let cluster = stage(3);
    let split = plan(&cluster);
    to_pending(&cluster, &split);
    has_been_held(&cluster, &split);
    cluster.fault("").unwrap();
    assert_eq!(outcome(&split), all_passed());
    // None of them is needed any more.
    wait::until("the streams to end", LIMIT, || {
        let query =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % writer'";
        let mut target = cluster.servers[1].superuser(DATABASE)?;
        Ok((target.query_one(query, &[])?.get::<_, i64>(0) == 1).then_some(()))
    })
    .unwrap();
    lose(&cluster, &split);
    as_worker(&cluster, &split, 1).batch_execute("INSERT INTO parts VALUES ('moves', 7, 'more', 1)").unwrap();
    let by_streams = (verify(&split), differences(&split));
    cluster.set("shardmaster.copy_streams", "1").unwrap();
    let by_one = (verify(&split), differences(&split));
    assert_eq!(by_streams, by_one);
    let counts: Vec<i64> = by_one.0.iter().map(|told| told.differing).filter(|count| *count > 0).collect();
    assert_eq!((counts, by_one.1.len()), (vec![3, 4, 1], 8), "{by_one:?}");
    cluster.set("shardmaster.copy_streams", "3").unwrap();
    split.call("repair").unwrap();
    wait::until("the repair", LIMIT, || Ok((outcome(&split) == all_passed()).then_some(()))).unwrap();
}

#[test]
fn streams_compare_a_target_that_clients_write_to() {
    let cluster = stage(3);
    let split = plan(&cluster);
    to_pending(&cluster, &split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    let change = |table: &str| {
        format!(
            "UPDATE {table} SET val = 'changed' WHERE tenant = 'moves' AND id % 1000 = 2; DELETE FROM {table} WHERE tenant = 'moves' AND id % 1000 = 3;
             INSERT INTO {table} VALUES ('moves', 90000, 'new', 1)"
        )
    };
    client.batch_execute(&format!("{}; {}", change("items"), change("parts"))).unwrap();
    has_been_held(&cluster, &split);
    client.batch_execute("UPDATE items SET val = 'again' WHERE tenant = 'moves' AND id % 1000 = 5").unwrap();
    cluster.fault("").unwrap();
    assert_eq!(outcome(&split), all_passed());
    lose(&cluster, &split);
    let told = verify(&split);
    let counts: Vec<i64> = told.iter().map(|told| told.differing).filter(|count| *count > 0).collect();
    assert_eq!(counts, [3, 3, 1], "{told:?}");
}

#[test]
fn a_comparison_that_is_interrupted_goes_on() {
    let cluster = stage(3);
    let split = plan(&cluster);
    to_pending(&cluster, &split);
    for action in ["exit", "error"] {
        let strike = Strike::arm(&cluster, POINT, action).unwrap();
        split.call("verify").unwrap();
        strike.wait(LIMIT).unwrap();
        assert_eq!(outcome(&split), all_passed(), "{action}");
    }
    // Somebody ends a session, on either side.
    for (server, purpose) in [(0, "reader"), (1, "writer")] {
        has_been_held(&cluster, &split);
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE application_name LIKE 'shardmaster split % {purpose}' AND xact_start IS NOT NULL
              ORDER BY backend_start DESC LIMIT 1"
        );
        cluster.servers[server].superuser(DATABASE).unwrap().batch_execute(&end).unwrap();
        cluster.fault("").unwrap();
        assert_eq!(outcome(&split), all_passed(), "{purpose}");
    }
}

/// Servers with room for fewer sessions compare by fewer; whoever waits for a table is not waited for.
#[test]
fn sessions_that_are_missing_are_done_without() {
    let cluster = stage(8);
    let split = plan(&cluster);
    to_pending(&cluster, &split);
    by_superuser(&cluster, 1, &format!("ALTER ROLE {MOVER} CONNECTION LIMIT 2"));
    cluster.hold(POINT).unwrap();
    split.call("verify").unwrap();
    split.wait_for_event("shardmaster.copy_streams", LIMIT).unwrap();
    split.wait_held(POINT, LIMIT).unwrap();
    assert_eq!([at_work(&cluster, 0, "reader"), at_work(&cluster, 1, "writer")], [2, 2]);
    let config = cluster.servers[0].config(DATABASE, "postgres");
    let locker = std::thread::spawn(move || {
        let mut session = config.connect(postgres::NoTls).unwrap();
        session.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; COMMIT").unwrap();
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'items'::regclass AND NOT granted";
    wait::until("somebody to wait for the table", LIMIT, || {
        Ok((source(&cluster).query_one(waits, &[])?.get::<_, i64>(0) > 0).then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    locker.join().unwrap();
    assert_eq!(outcome(&split), all_passed());
}
