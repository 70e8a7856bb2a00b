//! Rows on the wrong shard are deleted there. A row that no other shard has is deleted only if the call says so.

use shardmaster_tests::fixture::{by_superuser, by_superusers};
use shardmaster_tests::queries::{error, hint};
use shardmaster_tests::repair::{
    DELETE, DELETE_ALL, DELETE_CONFLICTING, MOVE, counts, dba, number, report, stage,
};

#[test]
fn rows_that_are_nowhere_else_are_not_deleted() {
    let cluster = stage(6000);
    by_superuser(&cluster, 1, "INSERT INTO items VALUES ('moves', 77, 'other'), ('moves', 78, 'v78')");
    let mut dba = dba(&cluster);
    // The hint of a conflict names the remedy.
    assert_eq!(error(&mut dba, MOVE).0, "SM008");
    let hint_of_conflict = hint(&mut dba, MOVE);
    for said in ["may be lost", "rows => 'conflicting'", "Then call shard_misplaced_move() again"] {
        assert!(hint_of_conflict.contains(said), "{hint_of_conflict}");
    }
    let refused = (
        "55000".to_owned(),
        r#"5998 rows of table "public"."items" on shard "shard_a" are not on shard "shard_b", one of them with the key (moves, 1)"#
            .to_owned(),
    );
    assert_eq!(error(&mut dba, DELETE), refused);
    assert!(hint(&mut dba, DELETE).contains("shard_misplaced_move() moves them"));
    assert_eq!(counts(&cluster), [6000, 2, 6000, 0]);
    // Only the row that differs is deleted.
    let run: i64 = dba.query_one(DELETE_CONFLICTING, &[]).unwrap().get(0);
    assert_eq!(report(&cluster, run), "delete done items 0 1");
    assert_eq!(counts(&cluster), [5999, 2, 6000, 0]);
    dba.batch_execute(DELETE_CONFLICTING).unwrap();
    dba.batch_execute(MOVE).unwrap();
    assert_eq!(counts(&cluster), [0, 6000, 6000, 0]);
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM items WHERE val = 'v' || id"), 5999);
    // Both shards have all rows by now, and some differ.
    by_superuser(&cluster, 0, "INSERT INTO items SELECT 'moves', i, 'x' FROM generate_series(1, 2500) i");
    let run: i64 = dba.query_one(DELETE, &[]).unwrap().get(0);
    assert_eq!(report(&cluster, run), "delete done items 0 2500");
    assert_eq!(counts(&cluster), [0, 6000, 6000, 0]);
    for (call, state) in [
        ("CALL shard_misplaced_delete('shard_a', '{nowhere}')", "55000"),
        ("CALL shard_misplaced_delete('shard_a', '{nowhere}', rows => 'conflicting')", "55000"),
        ("CALL shard_misplaced_delete('shard_a', '{moves}', rows => 'most')", "22023"),
        ("CALL shard_misplaced_delete('shard_a', '{moves}', rows => NULL)", "22004"),
    ] {
        assert_eq!(error(&mut dba, call).0, state, "{call}");
    }
}

/// A row of another key has the same primary key there. It is not the same row.
#[test]
fn a_row_of_another_key_is_not_the_row() {
    let cluster = stage(1);
    by_superusers(
        &cluster,
        "CREATE TABLE notes (id int PRIMARY KEY, tenant text); GRANT SELECT, INSERT, DELETE ON notes TO mender;
         CREATE TABLE log (tenant text, what text); GRANT SELECT, INSERT, DELETE ON log TO mender",
    );
    by_superuser(
        &cluster,
        0,
        "INSERT INTO notes VALUES (1, 'moves'), (2, 'moves'), (3, 'more'); INSERT INTO log VALUES ('moves', 'x')",
    );
    by_superuser(&cluster, 1, "INSERT INTO notes VALUES (1, 'moves'), (2, 'more'), (3, 'moves')");
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT shard_table_add('notes', 'tenant'), shard_table_add('log', 'tenant'), shard_assign('more', 'shard_b')")
        .unwrap();
    let mut dba = dba(&cluster);
    let notes = "CALL shard_misplaced_delete('shard_a', '{moves,more}', tables => '{notes}')";
    let (state, message) = error(&mut dba, notes);
    assert_eq!(state, "55000");
    assert!(message.starts_with("2 rows of table"), "{message}");
    assert_eq!(number(&cluster, 0, "SELECT count(*) FROM notes"), 3);
    // Without a primary key rows cannot be matched.
    let log = "CALL shard_misplaced_delete('shard_a', '{moves}', tables => '{log}')";
    assert_eq!(error(&mut dba, log).0, "0A000");
    dba.batch_execute(DELETE_ALL).unwrap();
    let left = "SELECT (SELECT count(*) FROM notes) * 10 + (SELECT count(*) FROM log)";
    assert_eq!([number(&cluster, 0, left), number(&cluster, 1, left)], [10, 30]);
}

/// A row that differs is deleted, and none that refers to it.
#[test]
fn rows_that_refer_to_conflicting_ones_stay() {
    let cluster = stage(1);
    by_superusers(
        &cluster,
        "CREATE TABLE orders (tenant text, id int PRIMARY KEY, total int);
         CREATE TABLE parts (tenant text, id int PRIMARY KEY, part_of int REFERENCES orders ON DELETE CASCADE, amount int);
         GRANT SELECT, INSERT, DELETE ON orders, parts TO mender",
    );
    let rows = "INSERT INTO orders VALUES ('moves', 1, 100), ('moves', 2, 100);
                INSERT INTO parts VALUES ('moves', 1, 1, 5), ('moves', 2, 2, 7)";
    by_superuser(&cluster, 0, rows);
    by_superuser(&cluster, 1, "INSERT INTO orders VALUES ('moves', 1, 200)");
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT shard_table_add('orders', 'tenant'), shard_table_add('parts', 'tenant')")
        .unwrap();
    let mut dba = dba(&cluster);
    let call = "CALL shard_misplaced_delete('shard_a', '{moves}', rows => 'conflicting')";
    assert_eq!(error(&mut dba, call).0, "0A000");
    let left = "SELECT (SELECT count(*) FROM orders) * 10 + (SELECT count(*) FROM parts)";
    assert_eq!(number(&cluster, 0, left), 22);
    // The referring row differs as well.
    by_superuser(&cluster, 1, "INSERT INTO parts VALUES ('moves', 1, 1, 6)");
    dba.batch_execute(call).unwrap();
    assert_eq!(number(&cluster, 0, left), 11);
    dba.batch_execute("CALL shard_misplaced_move('shard_a', '{moves}')").unwrap();
    assert_eq!([number(&cluster, 0, left), number(&cluster, 1, left)], [0, 22]);
}
