//! Names that identify rows of the moving keys are given to others: columns or labels of an enum exchange
//! their names, and tables are renamed. Rows that were not moved are not deleted, and rows that are left are
//! reported.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{
    LIMIT, before_the_next_step, by_owner, by_superuser, cluster, source, to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Makes a keyspace in which `x` moves, `y` stays on the source, and `z` has always been on the target. Each
/// has the same number of rows.
fn stage(rows: u32) -> Cluster {
    let cluster = cluster(&[]);
    for server in 0..2 {
        by_superuser(
            &cluster,
            server,
            &format!("CREATE SCHEMA other AUTHORIZATION {OWNER}; GRANT USAGE ON SCHEMA other TO {MOVER}"),
        );
        by_owner(
            &cluster,
            server,
            "CREATE TYPE mood AS ENUM ('x', 'y', 'z');
             CREATE TABLE moods (mood mood NOT NULL, like_that mood, id int, val text, PRIMARY KEY (mood, id))",
        );
    }
    for (server, moods) in [(0, "xy"), (1, "z")] {
        by_owner(
            &cluster,
            server,
            &format!(
                "INSERT INTO moods SELECT m::mood, 'x', i, 'of ' || m
                   FROM generate_series(1, {rows}) i, regexp_split_to_table('{moods}', '') m"
            ),
        );
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('moods', 'directory', key_type => 'text'), shard_table_add('moods', 'mood', 'moods'),
                    shard_assign_many('{x,y}', 'shard_a', 'moods'), shard_assign('z', 'shard_b', 'moods')",
        )
        .unwrap();
    cluster
}

fn plan(cluster: &Cluster) -> Split<'_> {
    Split::plan_by(cluster, "SELECT shard_split_plan('shard_a', 'shard_b', '{x}', keyspace => 'moods')")
        .unwrap()
}

fn exchange_labels(one: &str, other: &str) -> String {
    format!(
        "BEGIN; ALTER TYPE mood RENAME VALUE '{one}' TO 'w'; ALTER TYPE mood RENAME VALUE '{other}' TO '{one}';
         ALTER TYPE mood RENAME VALUE 'w' TO '{other}'; COMMIT"
    )
}

const EXCHANGE_COLUMNS: &str =
    "BEGIN; ALTER TABLE moods RENAME mood TO m; ALTER TABLE moods RENAME like_that TO mood;
    ALTER TABLE moods RENAME m TO like_that; COMMIT";

/// Counts the rows that were written for a key, by whatever name the key is identified now.
fn written(client: &mut Client, table: &str, what: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table} WHERE val LIKE 'of {what}%'");
    client.query_one(&query, &[]).unwrap().get(0)
}

fn target(cluster: &Cluster) -> Client {
    cluster.servers[1].superuser(DATABASE).unwrap()
}

fn roll_back(split: &Split<'_>) {
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
}

#[test]
fn a_rollback_leaves_rows_alone_that_are_called_as_its_copies_were() {
    for (servers, change) in [
        (&[1][..], exchange_labels("x", "z")),
        (&[0, 1], exchange_labels("x", "z")),
        (&[1], EXCHANGE_COLUMNS.to_owned()),
        (&[0, 1], EXCHANGE_COLUMNS.to_owned()),
    ]
    .into_iter()
    .take(at_most(1))
    {
        let cluster = stage(50);
        let split = plan(&cluster);
        to_pending(&split);
        for server in servers {
            by_superuser(&cluster, *server, &change);
        }
        roll_back(&split);
        let mut target = target(&cluster);
        let left = ["x", "z"].map(|what| written(&mut target, "moods", what));
        assert_eq!(left, [50, 50], "{change} on {servers:?}");
        let events = split.events().unwrap();
        assert!(
            events.contains(
                "the condition for rows of the moving keys has changed on the target: public.moods"
            ),
            "{events}"
        );
    }
}

/// New labels, and labels of unrelated keys, are no obstacle.
#[test]
#[ignore = "make test-all: labels that nobody changed; make test has a_rollback_leaves_rows_alone_that_are_called_as_its_copies_were"]
fn a_rollback_deletes_copies_of_labels_that_are_what_they_were() {
    let cluster = stage(50);
    let split = plan(&cluster);
    to_pending(&split);
    by_superuser(&cluster, 1, "ALTER TYPE mood RENAME VALUE 'y' TO 'q'");
    by_superuser(&cluster, 1, "ALTER TYPE mood ADD VALUE 'a' BEFORE 'x'");
    roll_back(&split);
    let mut target = target(&cluster);
    assert_eq!(["x", "z"].map(|what| written(&mut target, "moods", what)), [0, 50]);
}

#[test]
#[ignore = "make test-all: what is said of it; make test has a_rollback_leaves_rows_alone_that_are_called_as_its_copies_were"]
fn a_rollback_says_where_copies_are_left_that_go_by_another_name() {
    for (change, table, said) in [
        (
            "ALTER TABLE moods RENAME mood TO kind",
            "moods",
            "public.moods (it no longer has a column \"mood\")",
        ),
        (
            "ALTER TABLE moods RENAME TO feelings",
            "feelings",
            "it is no longer a table of the split on the target: public.feelings",
        ),
        (
            "ALTER TABLE moods SET SCHEMA other",
            "other.moods",
            "it is no longer a table of the split on the target: other.moods",
        ),
    ] {
        let cluster = stage(50);
        let split = plan(&cluster);
        to_pending(&split);
        by_superuser(&cluster, 1, change);
        roll_back(&split);
        assert_eq!(written(&mut target(&cluster), table, "x"), 50, "{change}");
        let events = split.events().unwrap();
        assert!(events.contains(said) && events.contains("delete the copies by hand"), "{change}: {events}");
    }
}

/// Even if the operator accepts missing rows, rows of a key that stays are kept, because no other shard has them.
#[test]
fn a_finish_deletes_no_rows_of_a_key_that_stays() {
    for change in [exchange_labels("x", "y"), EXCHANGE_COLUMNS.to_owned()].into_iter().take(at_most(1)) {
        let cluster = stage(50);
        let split = plan(&cluster);
        to_pending(&split);
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
        by_superuser(&cluster, 1, "UPDATE moods SET val = val || ', new' WHERE mood = 'x'");
        by_superuser(&cluster, 0, &change);
        for accepting in [false, true] {
            let ended = if accepting { split.finish_accepting(LIMIT) } else { split.finish(LIMIT) };
            let error = ended.unwrap_err().to_string();
            assert!(
                error.contains("has rows of the moved keys that are not those that were moved"),
                "{error}"
            );
            let mut source = source(&cluster);
            assert_eq!(["x", "y"].map(|what| written(&mut source, "moods", what)), [50, 50], "{change}");
        }
        by_superuser(&cluster, 0, &change);
        split.finish(LIMIT).unwrap();
        let mut source = source(&cluster);
        assert_eq!(["x", "y"].map(|what| written(&mut source, "moods", what)), [0, 50]);
        assert_eq!(written(&mut target(&cluster), "moods", "x"), 50);
    }
}

/// No lock protects labels. A change between two batches is found before the next one is committed.
#[test]
#[ignore = "make test-all: a moment between batches; make test has a_finish_deletes_no_rows_of_a_key_that_stays"]
fn labels_that_are_exchanged_between_batches_end_a_finish() {
    let cluster = stage(100_000);
    // Without statistics an index scan finds all of them in one batch.
    by_superuser(&cluster, 0, "ANALYZE moods");
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    by_superuser(&cluster, 1, "UPDATE moods SET val = val || ', new' WHERE mood = 'x'");
    cluster.hold("finish_batch").unwrap();
    split.call("finish").unwrap();
    split.wait_held("finish_batch", LIMIT).unwrap();
    let mut source = source(&cluster);
    let gone = 100_000 - written(&mut source, "moods", "x");
    assert!((1..100_000).contains(&gone), "{gone} rows are gone");
    by_superuser(&cluster, 0, &exchange_labels("x", "y"));
    cluster.fault("").unwrap();
    let error = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(error.contains("has rows of the moved keys that are not those that were moved"), "{error}");
    assert_eq!(written(&mut source, "moods", "y"), 100_000);
    by_superuser(&cluster, 0, &exchange_labels("x", "y"));
    split.finish(LIMIT).unwrap();
    assert_eq!(["x", "y"].map(|what| written(&mut source, "moods", what)), [0, 100_000]);
}

/// A copy that starts again first deletes what it has already copied.
#[test]
#[ignore = "make test-all: a copy that begins anew; make test has a_rollback_leaves_rows_alone_that_are_called_as_its_copies_were"]
fn a_copy_that_begins_anew_deletes_its_own_rows_alone() {
    let cluster = stage(50);
    let split = plan(&cluster);
    to_pending(&split);
    before_the_next_step(&cluster, &split, || {
        by_superuser(&cluster, 1, &exchange_labels("x", "z"));
        by_superuser(&cluster, 0, "TRUNCATE moods");
    });
    let mut seen = String::new();
    wait::until("the split to say what is in its way", LIMIT, || {
        seen = split.describe();
        Ok(seen.contains("table public.moods changed on the target while rows move into it").then_some(()))
    })
    .map_err(|e| format!("{e}: {seen}"))
    .unwrap();
    let mut target = target(&cluster);
    assert_eq!(["x", "z"].map(|what| written(&mut target, "moods", what)), [50, 50]);
    by_superuser(&cluster, 1, &exchange_labels("x", "z"));
    wait::until("the copies to be gone", LIMIT, || {
        Ok((written(&mut target, "moods", "x") == 0).then_some(()))
    })
    .map_err(|e| e.context(&split.describe()))
    .unwrap();
    split.wait_settled(LIMIT).unwrap();
    assert_eq!(written(&mut target, "moods", "z"), 50);
}
