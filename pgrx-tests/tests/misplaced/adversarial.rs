//! Rows on the wrong shard that somebody makes hard to move. Uncertain moves are refused, and every call ends.

use shardmaster_tests::fixture::{by_superuser, by_superusers};
use shardmaster_tests::queries::error;
use shardmaster_tests::repair::{DELETE, DELETE_ALL, MOVE, counts, dba, number, report, stage, while_held};

/// The superuser of the wrong shard makes it return rows that were not requested.
#[test]
fn rows_of_other_keys_are_not_taken_from_a_shard_that_lies() {
    let cluster = stage(5);
    cluster.superuser().unwrap().batch_execute("SELECT shard_assign('vip', 'shard_b')").unwrap();
    by_superuser(
        &cluster,
        0,
        "INSERT INTO items VALUES ('vip', 2, 'forged'); SET allow_system_table_mods = on;
         CREATE FUNCTION pg_catalog.lies(text, text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
             AS $$BEGIN RETURN $1 OPERATOR(pg_catalog.~) 'vip|moves'; END$$;
         UPDATE pg_operator SET oprcode = 'pg_catalog.lies(text,text)'::regprocedure, oprcanhash = false, oprcanmerge = false
          WHERE oid = 98;
         ALTER ROLE mender SET enable_indexscan = off; ALTER ROLE mender SET enable_bitmapscan = off;
         ALTER ROLE mender SET enable_indexonlyscan = off",
    );
    let mut dba = dba(&cluster);
    let (state, message) = error(&mut dba, MOVE);
    assert_eq!(state, "0A000");
    assert_eq!(
        message,
        r#"shard "shard_a" gave 1 rows of table "public"."items" whose keys are not those that are moved, one of them with the key (vip, 2)"#
    );
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM items"), 0);
}

/// The row would belong to another key on the right shard, because of a generated column. It may arrive, or
/// be there already.
#[test]
fn rows_that_a_generated_column_makes_another_keys_are_not_moved() {
    let cluster = stage(5);
    for (server, side) in [(0, "left"), (1, "right")] {
        by_superuser(
            &cluster,
            server,
            &format!(
                "CREATE TABLE made (id int PRIMARY KEY, src text, tenant text GENERATED ALWAYS AS ({side}(src, 5)) STORED);
                 GRANT SELECT, INSERT, DELETE ON made TO mender"
            ),
        );
    }
    by_superuser(&cluster, 0, "INSERT INTO made (id, src) VALUES (1, 'movesother')");
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('made', 'tenant')").unwrap();
    let mut dba = dba(&cluster);
    let call = "CALL shard_misplaced_move('shard_a', '{moves}', tables => '{made}')";
    let (state, message) = error(&mut dba, call);
    assert_eq!(
        (state.as_str(), message.contains("have not arrived unchanged on shard")),
        ("0A000", true),
        "{message}"
    );
    by_superuser(&cluster, 1, "INSERT INTO made (id, src) VALUES (1, 'movesother')");
    assert_eq!(error(&mut dba, call).0, "SM008");
    assert_eq!(number(&cluster, 0, "SELECT count(*) FROM made"), 1);
    // A row whose generated key is the same is moved.
    by_superuser(&cluster, 1, "DELETE FROM made");
    by_superuser(&cluster, 0, "UPDATE made SET src = 'moves'");
    dba.batch_execute(call).unwrap();
    assert_eq!([0, 1].map(|server| number(&cluster, server, "SELECT count(*) FROM made")), [0, 1]);
}

#[test]
fn rows_that_a_trigger_puts_back_end_the_call() {
    let cluster = stage(5);
    by_superuser(
        &cluster,
        0,
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql
             AS $$BEGIN INSERT INTO public.items VALUES (OLD.tenant, OLD.id, OLD.val); RETURN NULL; END$$;
         CREATE TRIGGER again AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION again()",
    );
    let mut dba = dba(&cluster);
    dba.batch_execute("SET statement_timeout = '2 min'").unwrap();
    let moves = "CALL shard_misplaced_move('shard_a', '{moves}', fire_triggers => true)";
    for (call, run) in [(DELETE_ALL, "delete failed"), (moves, "move failed")] {
        let (state, message) = error(&mut dba, call);
        assert_eq!(
            (state.as_str(), message.contains("stay on shard \"shard_a\"")),
            ("55000", true),
            "{message}"
        );
        let number = if call == DELETE_ALL { 1 } else { 2 };
        assert!(report(&cluster, number).starts_with(run));
    }
    assert_eq!(counts(&cluster), [5, 5, 5, 0]);
}

#[test]
fn what_gives_no_rows_is_refused_by_name() {
    let cluster = stage(5);
    by_superusers(
        &cluster,
        "CREATE TABLE made (tenant text, id int, g int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (tenant, g));
         CREATE TABLE ruled (tenant text, id int, PRIMARY KEY (tenant, id)); CREATE RULE keeps AS ON DELETE TO ruled DO ALSO SELECT 1;
         GRANT SELECT, INSERT, DELETE ON made, ruled TO mender",
    );
    by_superuser(&cluster, 0, "INSERT INTO made VALUES ('moves', 1); INSERT INTO ruled VALUES ('moves', 1)");
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT shard_table_add('made', 'tenant'), shard_table_add('ruled', 'tenant')")
        .unwrap();
    let mut dba = dba(&cluster);
    for (table, what) in
        [("made", "a generated column \"g\" in its primary key"), ("ruled", "a rule ON DELETE, keeps")]
    {
        let call = format!("CALL shard_misplaced_move('shard_a', '{{moves}}', tables => '{{{table}}}')");
        let (state, message) = error(&mut dba, &call);
        assert_eq!(state, "0A000", "{message}");
        assert_eq!(message, format!("table \"public\".\"{table}\" of shard \"shard_a\" has {what}"));
    }
}

/// The shard has no row of this key, and the rows of the other keys are moved.
#[test]
fn a_key_that_is_no_value_of_a_column_has_no_rows_there() {
    let cluster = stage(5);
    by_superusers(
        &cluster,
        "CREATE TABLE numbers (tenant bigint, id int PRIMARY KEY); GRANT SELECT, INSERT, DELETE ON numbers TO mender",
    );
    by_superuser(&cluster, 0, "INSERT INTO numbers VALUES (7, 1), (8, 2)");
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT shard_table_add('numbers', 'tenant'), shard_assign('7', 'shard_b'), shard_assign('8', 'shard_a')")
        .unwrap();
    let mut dba = dba(&cluster);
    dba.batch_execute("CALL shard_misplaced_move('shard_a', '{moves,7}')").unwrap();
    assert_eq!(counts(&cluster), [0, 5, 5, 0]);
    assert_eq!(
        [0, 1].map(|server| number(&cluster, server, "SELECT sum(tenant)::bigint FROM numbers")),
        [8, 7]
    );
    dba.batch_execute("CALL shard_misplaced_delete('shard_a', '{moves}')").unwrap();
}

/// Rows are on both shards, and a client of the right one deletes or changes them. They do not come back.
#[test]
fn what_is_deleted_where_it_has_come_does_not_come_back() {
    let mut cluster = stage(5);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'";
    let interrupted = |cluster: &mut shardmaster_tests::cluster::Cluster| {
        while_held(cluster, "misplaced_copied", MOVE, |cluster| {
            cluster.superuser().unwrap().batch_execute(end).unwrap()
        })
    };
    assert!(interrupted(&mut cluster).is_some());
    assert_eq!(counts(&cluster), [5, 5, 5, 0]);
    by_superuser(
        &cluster,
        1,
        "DELETE FROM items WHERE tenant = 'moves' AND id = 1; UPDATE items SET id = 100 WHERE tenant = 'moves' AND id = 2",
    );
    let mut dba = dba(&cluster);
    for _ in 0..2 {
        let (state, message) = error(&mut dba, MOVE);
        assert_eq!(
            (state.as_str(), message.contains("run 1 of misplaced rows was interrupted")),
            ("55000", true),
            "{message}"
        );
        assert_eq!(counts(&cluster), [5, 4, 5, 0]);
    }
    // Rows that are only on the wrong shard by now are deleted only with rows => 'all'.
    assert_eq!(error(&mut dba, DELETE).0, "55000");
    dba.batch_execute(DELETE_ALL).unwrap();
    dba.batch_execute(MOVE).unwrap();
    assert_eq!(counts(&cluster), [0, 4, 5, 0]);
    // Different contents are also in doubt, and not just a conflict.
    by_superuser(&cluster, 0, "INSERT INTO items VALUES ('moves', 7, 'v7'), ('moves', 8, 'v8')");
    assert!(interrupted(&mut cluster).is_some());
    by_superuser(&cluster, 1, "UPDATE items SET val = 'changed' WHERE id = 7");
    let mut dba = self::dba(&cluster);
    let run: i64 = dba.query_one("SELECT max(run_id) FROM shard_misplaced_runs()", &[]).unwrap().get(0);
    let (state, message) = error(&mut dba, MOVE);
    let names = format!("run {run} of misplaced rows was interrupted");
    assert_eq!((state.as_str(), message.contains(&names)), ("55000", true), "{message}");
    dba.batch_execute(DELETE).unwrap();
    assert_eq!(counts(&cluster), [0, 6, 5, 0]);
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM items WHERE val = 'changed'"), 1);
}
