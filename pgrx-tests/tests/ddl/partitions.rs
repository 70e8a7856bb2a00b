//! Partitions that appear, with rows and without, at every stage of a split. Each of their rows is moved,
//! refused or waited for.

use postgres::{Client, NoTls};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{
    LIMIT, by_owner as run, client, cluster_of, cut_over_and_compare, plan, rows, source, state_of,
    to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Three levels: ranges of ids, one of which is partitioned by hash, and one by tenant and then by ranges again.
const TREE: &str = "
    CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
    CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (200);
    CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (200) TO (400) PARTITION BY HASH (tenant);
    CREATE TABLE items_2a PARTITION OF items_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE items_2b PARTITION OF items_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (400) TO (1000) PARTITION BY LIST (tenant);
    CREATE TABLE items_3d PARTITION OF items_3 DEFAULT;
    CREATE TABLE items_3m PARTITION OF items_3 FOR VALUES IN ('moves') PARTITION BY RANGE (id);
    CREATE TABLE items_3m1 PARTITION OF items_3m FOR VALUES FROM (400) TO (700)";

/// Creates a partition on both sides, with rights for clients.
fn create_both(cluster: &Cluster, name: &str, from: i32) {
    for server in [1, 0] {
        run(cluster, server, &partition(name, from));
    }
}

fn partition(name: &str, from: i32) -> String {
    let to = from + 1000;
    format!(
        "CREATE TABLE {name} PARTITION OF items FOR VALUES FROM ({from}) TO ({to}); GRANT ALL ON {name} TO {CLIENT};"
    )
}

/// A table beside the partitioned one, with its columns in another order and one dropped. It has ten rows of
/// the moving tenant and one of another.
fn loose(name: &str, from: i32) -> String {
    format!(
        "CREATE TABLE {name} (gone int, code int, val text, id int NOT NULL, tenant text NOT NULL);
         ALTER TABLE {name} DROP COLUMN gone;
         INSERT INTO {name} (tenant, id, val, code)
         SELECT CASE i WHEN 0 THEN 'stays' ELSE 'moves' END, {from} + i, 'attached', i FROM generate_series(0, 10) i;"
    )
}

fn attach(name: &str, from: i32) -> String {
    let to = from + 1000;
    format!("ALTER TABLE items ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to});")
}

fn wait_equal(cluster: &Cluster, split: &Split<'_>, what: &str) {
    wait::until(what, LIMIT, || Ok((rows(cluster, 0) == rows(cluster, 1)).then_some(()))).unwrap();
    split.call("replay_tail").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
}

fn insert(session: &mut Client, table: &str, id: i32) -> Result<u64, postgres::Error> {
    session.execute(&format!("INSERT INTO {table} VALUES ('moves', $1, 'client', 0)"), &[&id])
}

/// A partition that is created on the target after the guard refuses early clients. One that is created on
/// the source is captured from its first row.
#[test]
fn partitions_made_during_a_split_are_captured_and_guarded() {
    let cluster = cluster_of(&[], TREE);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    create_both(&cluster, "items_4", 1000);
    let mut early = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    for table in ["items", "items_4"] {
        assert_eq!(state_of(&insert(&mut early, table, 1500).unwrap_err()), "SM002");
    }
    early.execute("INSERT INTO items VALUES ('other', 1500, 'mine', 1)", &[]).unwrap();
    early.execute("DELETE FROM items WHERE tenant = 'other'", &[]).unwrap();
    insert(&mut client(&cluster), "items_4", 1501).unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    // This happens during tailing, also on the lowest level. Clients write at once.
    for server in [1, 0] {
        run(&cluster, server, "CREATE TABLE items_3m2 PARTITION OF items_3m FOR VALUES FROM (700) TO (1000)");
    }
    create_both(&cluster, "items_5", 2000);
    for id in [700, 2500] {
        insert(&mut client(&cluster), "items", id).unwrap();
    }
    wait_equal(&cluster, &split, "the new partitions");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), rows(&cluster, 1));
    // The nightly job of a server that the key has left makes next month's partition.
    run(&cluster, 0, &partition("items_6", 3000));
    for table in ["items", "items_6"] {
        assert_eq!(state_of(&insert(&mut client(&cluster), table, 3500).unwrap_err()), "SM001");
    }
    split.finish(LIMIT).unwrap();
    run(&cluster, 0, &partition("items_7", 4000));
    run(&cluster, 1, &partition("items_7", 4000));
    for table in ["items", "items_7"] {
        assert_eq!(state_of(&insert(&mut client(&cluster), table, 4500).unwrap_err()), "SM001");
        client(&cluster)
            .execute(&format!("INSERT INTO {table} VALUES ('stays', $1)"), &[&(4500 + table.len() as i32)])
            .unwrap();
    }
    insert(&mut early, "items_7", 4500).unwrap();
    split.drop_guard().unwrap();
    for server in [0, 1] {
        let left: i64 = cluster.servers[server]
            .superuser(DATABASE)
            .unwrap()
            .query_one("SELECT count(*) FROM pg_trigger WHERE tgname ~ 'shardmaster'", &[])
            .unwrap()
            .get(0);
        assert_eq!(left, 0);
    }
}

/// A partition that is attached with rows is copied, whenever that happens.
#[test]
fn rows_that_are_attached_are_copied() {
    let cluster = cluster_of(&["shardmaster.cutover_timeout = '2s'"], TREE);
    for number in 1..=6 {
        run(&cluster, 1, &partition(&format!("items_{number}000"), number * 1000));
    }
    let mut owner = source(&cluster);
    owner.batch_execute(&format!("SET ROLE {OWNER}")).unwrap();
    let bring = |number: i32| {
        let (name, from) = (format!("items_{number}000"), number * 1000);
        run(&cluster, 0, &format!("{}{}", loose(&name, from), attach(&name, from)));
    };
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    bring(1);
    cluster.hold("step_consumed").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_consumed", LIMIT).unwrap();
    bring(2);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    wait_equal(&cluster, &split, "what was attached during the backfill");
    let before: i64 = split.metric("total_rows_copied").unwrap();
    bring(3);
    wait_equal(&cluster, &split, "what was attached while it tailed");
    // The rows of the other partitions were not copied again.
    assert_eq!(split.metric::<i64>("total_rows_copied").unwrap(), before + 10);
    // It changed while it was detached, and nothing captured that.
    owner
        .batch_execute(
            "ALTER TABLE items DETACH PARTITION items_1000; UPDATE items_1000 SET val = 'away';
             ALTER TABLE items ATTACH PARTITION items_1000 FOR VALUES FROM (1000) TO (2000)",
        )
        .unwrap();
    wait_equal(&cluster, &split, "what was detached and attached again");
    // With an ATTACH that is not committed, the cutover aborts and nothing is lost.
    owner
        .batch_execute(&format!("{} BEGIN; {}", loose("items_4000", 4000), attach("items_4000", 4000)))
        .unwrap();
    split.call("cutover").unwrap();
    assert!(split.failure(LIMIT).unwrap().contains("lock on shard"), "{}", split.failure(LIMIT).unwrap());
    owner.batch_execute("COMMIT").unwrap();
    wait_equal(&cluster, &split, "what was attached when the cutover gave up");
    owner.batch_execute("DELETE FROM items WHERE tenant = 'stays' AND id >= 1000").unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// After the fence, ATTACH waits until the source is moved. The rows that it brings then are on no other
/// shard, so finish deletes nothing.
#[test]
fn rows_attached_after_the_fence_are_not_deleted() {
    let cluster = cluster_of(&["shardmaster.cutover_timeout = '60s'"], TREE);
    run(&cluster, 0, &loose("items_4", 1000));
    // Otherwise the check would refuse a table that is in no keyspace.
    let stays = "SELECT shard_table_add('items_4', NULL, policy => 'global')";
    cluster.superuser().unwrap().batch_execute(stays).unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_applied").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_applied", LIMIT).unwrap();
    let mut config = cluster.servers[0].config(DATABASE, "postgres");
    let thread = std::thread::spawn(move || {
        let mut session = config.application_name("attaches").connect(NoTls).unwrap();
        session.batch_execute(&attach("items_4", 1000)).unwrap();
    });
    wait::until_true(
        &mut source(&cluster),
        "ATTACH to wait",
        LIMIT,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'attaches' AND wait_event_type = 'Lock'",
    )
    .unwrap();
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    thread.join().unwrap();
    split.call("finish").unwrap();
    let text = split.failure(LIMIT).unwrap();
    assert!(text.contains("items_4") && text.contains("\"moves\""), "{text}");
    assert_eq!(rows(&cluster, 0).len(), 310);
    run(&cluster, 0, "ALTER TABLE items DETACH PARTITION items_4");
    split.finish(LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
    assert_eq!(rows(&cluster, 1).len(), 300);
}

/// Rows of the moving keys that a partition brings to the target are not ours. They stop the split, and a
/// rollback leaves them alone.
#[test]
#[ignore = "make test-all: the target's partitions; make test has ddl::concurrent::a_rollback_leaves_rows_alone_that_came_past_the_guard"]
fn rows_attached_on_the_target_are_refused() {
    let cluster = cluster_of(&[], TREE);
    run(&cluster, 0, &partition("items_4", 1000));
    run(&cluster, 1, &loose("items_4", 1000));
    let split = plan(&cluster);
    split.accept_remarks().unwrap();
    to_pending(&split);
    run(&cluster, 1, &attach("items_4", 1000));
    let text = split.failure(LIMIT).unwrap();
    assert!(text.contains("items_4") && text.contains("\"moves\""), "{text}");
    run(
        &cluster,
        1,
        "ALTER TABLE items DETACH PARTITION items_4; DELETE FROM items_4 WHERE tenant = 'moves'",
    );
    run(&cluster, 1, &attach("items_4", 1000));
    split.call("replay_tail").unwrap();
    insert(&mut client(&cluster), "items", 1500).unwrap();
    wait_equal(&cluster, &split, "the partition without strangers");
    // A detached partition takes copied rows along, which are copied again.
    run(
        &cluster,
        1,
        "BEGIN; ALTER TABLE items DETACH PARTITION items_1;
         CREATE TABLE items_1b PARTITION OF items FOR VALUES FROM (0) TO (200); COMMIT",
    );
    wait_equal(&cluster, &split, "the rows that were detached");
    run(
        &cluster,
        1,
        "BEGIN; ALTER TABLE items DETACH PARTITION items_1b;
         ALTER TABLE items ATTACH PARTITION items_1 FOR VALUES FROM (0) TO (200); COMMIT",
    );
    let text = split.failure(LIMIT).unwrap();
    assert!(text.contains("items_1 "), "{text}");
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    let left: Vec<i32> = rows(&cluster, 1).into_keys().collect();
    assert!(left.iter().all(|id| *id < 200), "{left:?}");
    let told = "attached meanwhile on the target: public.items_1: rows of the moving keys there were kept";
    assert!(split.events().unwrap().contains(told), "{}", split.events().unwrap());
}

/// It is attached at the last moment, between a step's beginning and its commit.
#[test]
#[ignore = "make test-all: the last moment; make test has ddl::concurrent::a_rollback_leaves_rows_alone_that_came_past_the_guard"]
fn a_partition_of_the_target_that_comes_within_a_step() {
    let cluster = cluster_of(&[], TREE);
    run(&cluster, 0, &partition("items_4", 1000));
    let split = plan(&cluster);
    split.accept_remarks().unwrap();
    cluster.hold("step_window").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_window", LIMIT).unwrap();
    insert(&mut client(&cluster), "items", 1500).unwrap();
    run(&cluster, 1, &format!("{}{}", loose("items_4", 1000), attach("items_4", 1000)));
    cluster.fault("").unwrap();
    assert!(split.failure(LIMIT).unwrap().contains("items_4"));
    assert!(!rows(&cluster, 1).contains_key(&1500));
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 1).len(), 10);
}

/// Inheriting tables that are no partitions, and triggers that somebody else has created or disabled.
#[test]
#[ignore = "make test-all: heirs, and triggers of others; make test has ddl::concurrent::rows_of_an_heir_survive"]
fn heirs_leftovers_and_disabled_guards() {
    let cluster = cluster_of(&[], TREE);
    let split = plan(&cluster);
    let name = format!("00_shardmaster_{}_s_i_1", split.id);
    source(&cluster)
        .batch_execute(&format!(
            "CREATE FUNCTION idle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER \"{name}\" AFTER INSERT ON items_1 FOR EACH ROW EXECUTE FUNCTION idle();
             CREATE TRIGGER \"{name}\" AFTER INSERT ON items_2a FOR EACH ROW EXECUTE FUNCTION idle()"
        ))
        .unwrap();
    split.accept_remarks().unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    client(&cluster)
        .execute("UPDATE items SET val = 'late' WHERE tenant = 'moves' AND id < 210", &[])
        .unwrap();
    wait_equal(&cluster, &split, "changes beside a leftover trigger");
    run(&cluster, 1, "ALTER TABLE items_1 DISABLE TRIGGER USER");
    client(&cluster)
        .execute("UPDATE items SET val = 'more' WHERE tenant = 'moves' AND id < 210", &[])
        .unwrap();
    let text = split.failure(LIMIT).unwrap();
    assert!(text.contains("guard"), "{text}");
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
}

#[test]
#[ignore = "make test-all: a table that inherits; make test has ddl::concurrent::rows_of_an_heir_survive"]
fn a_table_that_inherits_stops_the_split() {
    let cluster = shardmaster_tests::fixture::cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    run(
        &cluster,
        0,
        "CREATE TABLE heir () INHERITS (items); INSERT INTO heir VALUES ('moves', 7000, 'heir', 7000)",
    );
    let text = split.failure(LIMIT).unwrap();
    assert!(text.contains("changed on the source"), "{text}");
    run(&cluster, 0, "DROP TABLE heir");
    split.call("replay_tail").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// A client with an early route writes between the check and the guard.
#[test]
fn a_row_written_before_the_guard_survives_the_rollback() {
    for definition in
        [TREE, "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id))"]
    {
        let cluster = cluster_of(&[], definition);
        let split = plan(&cluster);
        cluster.hold("install_target").unwrap();
        split.call("start_dual_write").unwrap();
        split.wait_held("install_target", LIMIT).unwrap();
        let mut early = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
        insert(&mut early, "items", 7).unwrap();
        cluster.fault("").unwrap();
        let text = split.failure(LIMIT).unwrap();
        assert!(text.contains("items") && text.contains("\"moves\""), "{text}");
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        assert_eq!(rows(&cluster, 1).into_keys().collect::<Vec<_>>(), [7]);
        early.execute("DELETE FROM items WHERE tenant = 'moves'", &[]).unwrap();
        let split = plan(&cluster);
        to_pending(&split);
        cut_over_and_compare(&cluster, &split);
    }
}

/// Facts that only the servers know: another keyspace's table is a partition of one of ours, or is the same
/// table, because a namespace was added later.
#[test]
fn a_table_in_two_keyspaces_is_found() {
    let cluster = cluster_of(&[], TREE);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('second', 'directory');
             SELECT shard_table_add('items_1', 'tenant', 'second', key_type => 'text');
             SELECT shard_table_add('other.items', 'tenant', 'second')",
        )
        .unwrap();
    let findings = |split: &Split<'_>| -> String {
        let query = "SELECT coalesce(string_agg(detail, E'\\n'), '') FROM shard_split_check($1)
                      WHERE NOT ok AND check_name LIKE '%one keyspace'";
        cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0)
    };
    let text = findings(&plan(&cluster));
    assert!(text.contains("in one partition tree with public.items_1 of keyspace second"), "{text}");
    assert!(!text.contains("other.items"), "{text}");
    run(&cluster, 0, "RESET ROLE; CREATE SCHEMA other; CREATE TABLE other.items (LIKE items INCLUDING ALL)");
    let conninfo = cluster.servers[0].conninfo(DATABASE, shardmaster_tests::cluster::MOVER);
    let add = master.execute("SELECT shard_add('shard_c', $1, namespace => 'other')", &[&conninfo]);
    let refused = add.unwrap_err().as_db_error().unwrap().message().to_owned();
    assert!(refused.contains("\"other.items\" and \"items\" would be the same table there"), "{refused}");
}

/// Partitions may have their own owners, rules and triggers.
#[test]
fn what_the_check_finds_of_partitions() {
    let cluster = cluster_of(&[], TREE);
    run(
        &cluster,
        1,
        "RESET ROLE; ALTER TABLE items_1 OWNER TO postgres;
         CREATE RULE nothing AS ON DELETE TO items_2a DO INSTEAD NOTHING;
         CREATE FUNCTION idle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER theirs AFTER INSERT ON items_3m1 FOR EACH ROW EXECUTE FUNCTION idle();
         ALTER TABLE items_3m1 ENABLE ALWAYS TRIGGER theirs",
    );
    let text = plan(&cluster).findings().unwrap().join("\n");
    for finding in ["items_1 belongs to postgres", "items_2a has rule nothing", "items_3m1: trigger theirs"] {
        assert!(text.contains(finding), "{text}");
    }
}

/// Returns the numbers of rows and chunks of the copy. A copy that starts again counts its rows from zero,
/// and continues to count its chunks.
fn copied(cluster: &Cluster) -> (i64, i64) {
    let query = "SELECT rows_copied, chunks_ok FROM shard_split_tables(1)";
    let row = cluster.superuser().unwrap().query_one(query, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// A partition without rows is attached or created, in whatever order on the two sides. Rows that were copied
/// are not copied again.
#[test]
#[ignore = "make test-all: how much is copied; make test has rows_that_are_attached_are_copied"]
fn an_empty_partition_is_copied_alone() {
    let cluster = cluster_of(&[], TREE);
    let split = plan(&cluster);
    to_pending(&split);
    let (rows_before, mut chunks) = copied(&cluster);
    let empty = |name: &str, from: i32| {
        format!(
            "CREATE TABLE {name} (LIKE items INCLUDING ALL); {} GRANT ALL ON {name} TO {CLIENT};",
            attach(name, from)
        )
    };
    let steps: [(&str, &[(usize, String)]); 5] = [
        ("target first", &[(1, empty("items_4", 1000)), (0, empty("items_4", 1000))]),
        ("source first", &[(0, empty("items_5", 2000)), (1, empty("items_5", 2000))]),
        ("made", &[(1, partition("items_6", 3000)), (0, partition("items_6", 3000))]),
        (
            "a default",
            &[
                (1, "CREATE TABLE items_d PARTITION OF items DEFAULT".into()),
                (0, "CREATE TABLE items_d PARTITION OF items DEFAULT".into()),
            ],
        ),
        ("beside a default", &[(1, empty("items_7", 4000)), (0, empty("items_7", 4000))]),
    ];
    for (what, statements) in steps {
        for (server, statement) in statements {
            run(&cluster, *server, statement);
            split.call("replay_tail").unwrap();
            let trigger = "SELECT count(*) = 0 FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
                            WHERE c.relkind = 'r' AND NOT EXISTS (
                                  SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname ~ '^00_shardmaster.*_t_[0-9]+$')";
            let mut there = cluster.servers[*server].superuser(DATABASE).unwrap();
            wait::until_true(&mut there, "the partition to be taken in", LIMIT, trigger).unwrap();
            split.wait("cutover_pending", LIMIT).unwrap();
        }
        insert(&mut client(&cluster), "items", 5).unwrap();
        wait_equal(&cluster, &split, what);
        client(&cluster).execute("DELETE FROM items WHERE tenant = 'moves' AND id = 5", &[]).unwrap();
        wait_equal(&cluster, &split, what);
        chunks += 1;
        assert_eq!(copied(&cluster), (rows_before, chunks), "{what}: {}", split.events().unwrap());
    }
    cut_over_and_compare(&cluster, &split);
}

/// A TRUNCATE has no key, and the queue's columns have the types of the key.
#[test]
#[ignore = "make test-all: a key of a domain; make test has split::protocol::keys_scopes_savepoints_and_replica_roles_are_captured"]
fn a_truncate_is_captured_where_a_key_is_of_a_not_null_domain() {
    const DOMAIN: &str = "CREATE DOMAIN number AS int NOT NULL CHECK (VALUE > 0);
         CREATE TABLE items (tenant text, id number, val text, code int, PRIMARY KEY (tenant, id))";
    for parts in ["", " PARTITION BY LIST (tenant); CREATE TABLE items_d PARTITION OF items DEFAULT"] {
        let cluster = cluster_of(&[], &format!("{DOMAIN}{parts}"));
        let split = plan(&cluster);
        to_pending(&split);
        let mut writer = client(&cluster);
        writer.batch_execute("TRUNCATE items; INSERT INTO items VALUES ('moves', 7, 'client', 0)").unwrap();
        wait_equal(&cluster, &split, "what came after the TRUNCATE");
        cut_over_and_compare(&cluster, &split);
        assert_eq!(rows(&cluster, 1).len(), 1);
    }
}

/// Copies that were deleted while their partition was detached on the target are copied again.
#[test]
#[ignore = "make test-all: one that was away; make test has rows_that_are_attached_are_copied"]
fn a_partition_of_the_target_that_comes_back_empty_is_copied_again() {
    let cluster = cluster_of(&[], TREE);
    let split = plan(&cluster);
    to_pending(&split);
    run(
        &cluster,
        1,
        "ALTER TABLE items DETACH PARTITION items_1; DELETE FROM items_1;
         ALTER TABLE items ATTACH PARTITION items_1 FOR VALUES FROM (0) TO (200)",
    );
    wait_equal(&cluster, &split, "its rows");
    cut_over_and_compare(&cluster, &split);
}

/// A table has no key yet, and one side has another partition more. Both are reported.
#[test]
fn what_no_partition_takes_is_named_without_a_key() {
    let cluster = cluster_of(&[], &TREE.replace(", PRIMARY KEY (tenant, id)", ""));
    run(&cluster, 0, &format!("{}{}", loose("items_9", 5000), attach("items_9", 5000)));
    let found = plan(&cluster).findings_with_hints().unwrap().join("\n");
    assert!(found.contains("items_9: no partition of the target takes the row with key (moves)"), "{found}");
    assert!(!found.contains("cannot be asked"), "{found}");
}

/// A partitioned table without partitions moves nothing at first. Rows that it gets meanwhile are copied.
#[test]
#[ignore = "make test-all: a table without partitions; make test has rows_that_are_attached_are_copied"]
fn a_table_without_partitions_moves() {
    let cluster = cluster_of(&[], TREE);
    for server in [0, 1] {
        run(
            &cluster,
            server,
            "CREATE TABLE later (tenant text, at int, PRIMARY KEY (tenant, at)) PARTITION BY RANGE (at)",
        );
    }
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('later', 'tenant')").unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    cut_over_and_compare(&cluster, &split);
    split.finish(LIMIT).unwrap();
    split.drop_guard().unwrap();
    let back = Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    to_pending(&back);
    for server in [0, 1] {
        run(&cluster, server, "CREATE TABLE later_1 PARTITION OF later FOR VALUES FROM (0) TO (10)");
    }
    run(&cluster, 1, "INSERT INTO later VALUES ('moves', 1), ('stays', 1)");
    back.call("cutover").unwrap();
    back.wait("completed", LIMIT).unwrap();
    let count = "SELECT count(*) FROM later WHERE tenant = 'moves'";
    let come: i64 = source(&cluster).query_one(count, &[]).unwrap().get(0);
    assert_eq!(come, 1);
    back.finish(LIMIT).unwrap();
}
