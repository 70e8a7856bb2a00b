//! The rules of the protocol, one by one. Each test keeps a session open at the point where ignoring the rule
//! would lose a write.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{
    LIMIT, client, cluster, cut_over_and_compare, plan, rows, source, state_of, to_pending,
};
use shardmaster_tests::server::signal;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Returns the key that moves and so many others that triggers do not list them.
fn beside_others(cluster: &Cluster) -> Vec<String> {
    let keys: Vec<String> = (0..100).map(|n| format!("another {n}")).chain(["moves".into()]).collect();
    let assign = "SELECT shard_assign_many($1, 'shard_a')";
    cluster.superuser().unwrap().execute(assign, &[&&keys[..100]]).unwrap();
    keys
}

#[test]
fn a_snapshot_older_than_the_split_cannot_write() {
    let cluster = cluster(&[]);
    let many = beside_others(&cluster);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let few = ["moves"].as_slice();
    for (level, keys) in
        [("REPEATABLE READ", few), ("SERIALIZABLE", few), ("REPEATABLE READ", &many), ("SERIALIZABLE", &many)]
    {
        let mut writer = client(&cluster);
        writer.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM items")).unwrap();
        let split = Split::plan(&cluster, "shard_a", "shard_b", keys).unwrap();
        split.call("start_dual_write").unwrap();
        split.wait("dual_write", LIMIT).unwrap();
        let refused = writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves'").unwrap_err();
        assert_eq!(state_of(&refused), "40001", "{level}, {} keys", keys.len());
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
    }
}

#[test]
fn a_snapshot_across_the_fence_cannot_write() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let writers = ["REPEATABLE READ", "SERIALIZABLE"].map(|level| {
        let mut writer = client(&cluster);
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM items");
        writer.batch_execute(&begin).unwrap();
        writer
    });
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    for mut writer in writers {
        let refused = writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves'").unwrap_err();
        assert_eq!(state_of(&refused), "40001");
    }
    let refused = client(&cluster).batch_execute("DELETE FROM items WHERE tenant = 'moves'").unwrap_err();
    assert_eq!(state_of(&refused), "SM001");
    client(&cluster).batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'stays'").unwrap();
}

#[test]
fn a_transaction_that_began_before_capture_is_waited_for() {
    let cluster = cluster(&[]);
    let mut writer = client(&cluster);
    writer.batch_execute("BEGIN; UPDATE items SET val = 'early' WHERE tenant = 'moves' AND id < 50").unwrap();
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("lock on public.items", LIMIT).unwrap();
    assert_eq!(split.phase().unwrap(), "planning");
    writer.batch_execute("COMMIT").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Changes are not ordered by commit: an early one is committed last.
#[test]
fn a_late_commit_of_an_early_change_arrives() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let mut late = client(&cluster);
    late.batch_execute("BEGIN; UPDATE items SET val = 'late' WHERE tenant = 'moves' AND id = 2").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    let mut other = client(&cluster);
    for (applied, id) in [(1, 4), (2, 6), (3, 8)] {
        let update = "UPDATE items SET val = 'other' WHERE tenant = 'moves' AND id = $1";
        other.execute(update, &[&id]).unwrap();
        let seen = "SELECT coalesce(last_event_id, 0) FROM shard_split_metrics($1)";
        let mut master = cluster.superuser().unwrap();
        wait::until("the change to be applied", LIMIT, || {
            let last: i64 = master.query_one(seen, &[&split.id])?.get(0);
            Ok((last >= applied).then_some(()))
        })
        .unwrap();
    }
    late.batch_execute("COMMIT").unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(rows(&cluster, 1)[&2].starts_with("late"));
}

#[test]
fn keys_scopes_savepoints_and_replica_roles_are_captured() {
    let cluster = cluster(&[]);
    change_while_it_is_copied(&cluster, &plan(&cluster));
}

/// With many keys, the capturing function decides itself, by a bit filter and a table.
#[test]
fn the_same_is_captured_of_one_of_many_keys() {
    let cluster = cluster(&[]);
    let keys = beside_others(&cluster);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &keys).unwrap();
    change_while_it_is_copied(&cluster, &split);
}

fn change_while_it_is_copied(cluster: &Cluster, split: &Split<'_>) {
    cluster.hold("step_committed").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_committed", LIMIT).unwrap();
    source(cluster)
        .batch_execute(
            "UPDATE items SET id = id + 1000 WHERE tenant = 'moves' AND id BETWEEN 10 AND 20;
             UPDATE items SET tenant = 'stays', id = id + 2000, code = code + 2000 WHERE tenant = 'moves' AND id BETWEEN 30 AND 40;
             UPDATE items SET tenant = 'moves', id = id + 3000, code = code + 3000 WHERE tenant = 'stays' AND id BETWEEN 51 AND 61;
             BEGIN;
             UPDATE items SET code = 70 + 72 - code WHERE tenant = 'moves' AND id IN (70, 72);
             SAVEPOINT s; UPDATE items SET val = 'undone' WHERE tenant = 'moves' AND id = 80; ROLLBACK TO s;
             DELETE FROM items WHERE tenant = 'moves' AND id = 82;
             COMMIT;
             SET session_replication_role = replica;
             UPDATE items SET val = 'replica' WHERE tenant = 'moves' AND id = 90",
        )
        .unwrap();
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(cluster, split);
    assert!(rows(cluster, 1)[&90].starts_with("replica"));
}

#[test]
#[ignore = "make test-all: each at rest; make test has ddl::truncate::truncate_and_rewrites_at_every_point_of_a_step"]
fn truncate_and_rewrites_start_the_copy_again() {
    for change in [
        "TRUNCATE items",
        "VACUUM FULL items",
        "TRUNCATE items; INSERT INTO items VALUES ('moves', 1, 'new', 1)",
    ] {
        let cluster = cluster(&[]);
        let split = plan(&cluster);
        to_pending(&split);
        for statement in change.split("; ") {
            source(&cluster).batch_execute(statement).unwrap();
        }
        split.call("replay_tail").unwrap();
        split.wait("cutover_pending", LIMIT).unwrap();
        let deadline = std::time::Instant::now() + LIMIT;
        while rows(&cluster, 0) != rows(&cluster, 1) {
            assert!(std::time::Instant::now() < deadline, "{change}");
            split.call("replay_tail").ok();
        }
        split.wait("cutover_pending", LIMIT).unwrap();
        cut_over_and_compare(&cluster, &split);
    }
}

#[test]
fn a_changed_trigger_stops_the_split() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let change = "ALTER TABLE items DISABLE TRIGGER \"00_shardmaster_1_s_u_1\"";
    source(&cluster).batch_execute(change).unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert_eq!(error.sqlstate(), Some("55000"), "{error}");
    assert!(error.to_string().contains("changed on the source"), "{error}");
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
}

#[test]
#[ignore = "make test-all: a prepared transaction; make test has security::parties::a_writer_holds_a_cutover_up_until_its_deadline"]
fn a_prepared_transaction_holds_the_cutover_off_until_its_deadline() {
    let cluster = cluster(&["shardmaster.cutover_timeout = '500ms'"]);
    let split = plan(&cluster);
    to_pending(&split);
    client(&cluster)
        .batch_execute("BEGIN; UPDATE items SET val = 'prepared' WHERE tenant = 'moves' AND id = 2; PREPARE TRANSACTION 'p'")
        .unwrap();
    split.call("cutover").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert_eq!(error.sqlstate(), Some("55P03"), "{error}");
    assert!(error.to_string().contains("prepared transaction 'p', open for"), "{error}");
    assert_eq!(split.phase().unwrap(), "cutover_pending");
    client(&cluster)
        .batch_execute("UPDATE items SET val = 'meanwhile' WHERE tenant = 'moves' AND id = 4")
        .unwrap();
    client(&cluster).batch_execute("COMMIT PREPARED 'p'").unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(rows(&cluster, 1)[&2].starts_with("prepared"));
}

/// Changes that are queued between a step's snapshot and its consumption belong to the next step.
#[test]
fn a_change_between_snapshot_and_consumption_stays_queued() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("step_committed").unwrap();
    // The worker may see the setting a moment later, so there is a window until it is held.
    let mut writer = client(&cluster);
    wait::until("a step to be held", LIMIT, || {
        writer.batch_execute("UPDATE items SET val = 'seen' WHERE tenant = 'moves' AND id = 2")?;
        let waiting: Option<String> = split.metric("waiting_for")?;
        Ok(waiting.is_some_and(|text| text.contains("step_committed")).then_some(()))
    })
    .unwrap();
    writer.batch_execute("UPDATE items SET val = 'late' WHERE tenant = 'moves' AND id = 4").unwrap();
    cluster.fault("").unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(rows(&cluster, 1)[&4].starts_with("late"));
}

#[test]
fn a_queue_past_its_lease_starts_the_copy_again() {
    let cluster = cluster(&["shardmaster.capture_lease = '1s'"]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("pause").unwrap();
    let mut agent = source(&cluster);
    let lapsed = "SELECT bool_and(open_until < clock_timestamp()) FROM shardmaster_agent.lease";
    wait::until_true(&mut agent, "the lease to end", LIMIT, lapsed).unwrap();
    // The lease is only checked now and then, so one of these rows meets it some time.
    let mut writer = client(&cluster);
    let marked = "SELECT count(*) > 0 FROM shardmaster_agent.overflow";
    wait::until("the mark", LIMIT, || {
        writer.batch_execute("UPDATE items SET val = 'unqueued' WHERE tenant = 'moves' AND id <= 200")?;
        Ok(agent.query_one(marked, &[])?.get::<_, bool>(0).then_some(()))
    })
    .unwrap();
    split.call("resume").unwrap();
    let arrived = || Ok(rows(&cluster, 1).get(&2).is_some_and(|v| v.starts_with("unqueued")).then_some(()));
    wait::until("the new copy", LIMIT, arrived).unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    let told = split.events().unwrap();
    assert!(told.contains("had stopped, its lease had expired"), "{told}");
    cut_over_and_compare(&cluster, &split);
}

/// However long no worker comes, the source's disk does not fill with marks, and a writer that has left no
/// mark is waited for.
#[test]
#[ignore = "make test-all: how many marks there are; make test has a_transaction_that_began_before_capture_is_waited_for"]
fn a_mark_of_one_writer_stands_for_others() {
    let cluster = cluster(&["shardmaster.capture_lease = '1s'"]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("pause").unwrap();
    let mut agent = source(&cluster);
    let close =
        "SELECT setval(format('shardmaster_agent.queue_%s_seq', split_id), 2) FROM shardmaster_agent.lease";
    agent.query_one(close, &[]).unwrap();
    let marks = |agent: &mut Client| -> i64 {
        agent.query_one("SELECT count(*) FROM shardmaster_agent.overflow", &[]).unwrap().get(0)
    };
    let update = |id: i32| format!("UPDATE items SET val = 'unqueued' WHERE tenant = 'moves' AND id = {id}");
    let mut writer = client(&cluster);
    writer.batch_execute(&format!("BEGIN; {}; ROLLBACK", update(2))).unwrap();
    assert_eq!(marks(&mut agent), 0);
    for id in 1..=50 {
        writer.batch_execute(&update(2 * id)).unwrap();
    }
    assert_eq!(marks(&mut agent), 1);
    // The mark that this transaction sees may be removed before it commits.
    writer.batch_execute(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {}; COMMIT", update(102))).unwrap();
    assert_eq!(marks(&mut agent), 2);
    writer.batch_execute(&format!("BEGIN; {}", update(104))).unwrap();
    split.call("resume").unwrap();
    let waits = || {
        let waiting: Option<String> = split.metric("waiting_for")?;
        Ok(waiting.is_some_and(|text| text.contains("wrote while the queue was full")).then_some(()))
    };
    wait::until("the writer to be waited for", LIMIT, waits).unwrap();
    assert_eq!(marks(&mut agent), 0);
    writer.batch_execute("COMMIT").unwrap();
    let arrived = || Ok(rows(&cluster, 1).get(&104).is_some_and(|v| v.starts_with("unqueued")).then_some(()));
    wait::until("the new copy", LIMIT, arrived).unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
fn another_master_is_refused_until_it_adopts_the_shard() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("UPDATE shardmaster.installation SET id = gen_random_uuid()").unwrap();
    master
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'")
        .unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert!(error.to_string().contains("belongs to another master"), "{error}");
    let found = "SELECT ok, concat_ws(': ', detail, hint) FROM shard_check('shard_b') WHERE item = 'master'";
    let row = master.query_one(found, &[]).unwrap();
    let (ok, said): (bool, String) = (row.get(0), row.get(1));
    assert!(
        !ok && said.contains("belongs to another master") && said.contains("shard_adopt('shard_b')"),
        "{said}"
    );
    master.batch_execute("SELECT shard_adopt('shard_a'), shard_adopt('shard_b')").unwrap();
    assert!(master.query_one(found, &[]).unwrap().get::<_, bool>(0));
    split.call("resume").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: another version; make test has masters::extension_update::an_update_in_the_middle_of_splits_loses_nothing"]
fn what_another_version_has_installed_is_left_alone() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    source(&cluster).batch_execute("UPDATE shardmaster_agent.master SET agent_version = 2").unwrap();
    let workers =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    cluster.superuser().unwrap().batch_execute(workers).unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    let wanted =
        "the agent's schema on shard \"shard_a\" is of version 2, and this master supports version 1";
    assert!(error.to_string().contains(wanted), "{error}");
    source(&cluster).batch_execute("UPDATE shardmaster_agent.master SET agent_version = 1").unwrap();
    split.call("resume").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: what is told of it; make test has split::collisions::a_row_of_another_moving_split_is_waited_for"]
fn a_row_of_another_key_in_the_way_is_named() {
    let cluster = cluster(&[]);
    for shard in &cluster.shards {
        cluster
            .owner_of(shard)
            .unwrap()
            .batch_execute(
                "ALTER TABLE items DROP CONSTRAINT items_pkey; ALTER TABLE items ADD PRIMARY KEY (id)",
            )
            .unwrap();
    }
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    // This comes after the check, which would find it.
    target.batch_execute("INSERT INTO items VALUES ('other', 2, 'mine', 2)").unwrap();
    split.call("run_backfill").unwrap();
    let error = split.wait("cutover_pending", LIMIT).unwrap_err();
    assert_eq!(error.sqlstate(), Some("23505"), "{error}");
    target.batch_execute("DELETE FROM items WHERE tenant = 'other'").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// A row of another key has the primary key of a changed row. Deleting by primary key alone would delete it, too.
#[test]
fn rows_of_other_keys_are_not_deleted_with_a_window() {
    let cluster = cluster(&[]);
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        owner
            .batch_execute(
                "ALTER TABLE items DROP CONSTRAINT items_pkey; ALTER TABLE items ADD PRIMARY KEY (id)",
            )
            .unwrap();
    }
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.batch_execute("INSERT INTO items VALUES ('other', 9000, 'mine', 9000)").unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    client(&cluster)
        .batch_execute(
            "INSERT INTO items VALUES ('moves', 9000, 'here and gone', 9000); DELETE FROM items WHERE id = 9000",
        )
        .unwrap();
    cut_over_and_compare(&cluster, &split);
    let left: String = target.query_one("SELECT val FROM items WHERE id = 9000", &[]).unwrap().get(0);
    assert_eq!(left, "mine");
}

/// The worker of this session is gone, but its COMMIT is still on its way. The next worker terminates the
/// session before it reads anything.
#[test]
fn a_late_commit_of_a_dead_worker_is_refused() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let generation = "SELECT generation FROM shardmaster_agent.generation WHERE split_id = $1";
    let generation: i64 = target.query_one(generation, &[&split.id]).unwrap().get(0);
    let secret = "SELECT secret FROM shardmaster.split_plan WHERE reverse_of IS NULL";
    let secret: String = cluster.superuser().unwrap().query_one(secret, &[]).unwrap().get(0);
    let mut zombie = cluster.servers[1].connect(DATABASE, "mover").unwrap();
    let pid: i32 = zombie.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    zombie
        .batch_execute(&format!(
            "SET shardmaster_agent.mover = '{secret}'; SET session_replication_role = replica;
             INSERT INTO shardmaster_agent.session SELECT {}, 'target', pid, backend_start
               FROM pg_stat_activity WHERE pid = pg_backend_pid()",
            split.id
        ))
        .unwrap();
    zombie
        .batch_execute(&format!(
            "BEGIN; SELECT 1 FROM shardmaster_agent.generation WHERE generation = {generation} FOR SHARE;
             DELETE FROM items WHERE tenant = 'moves' AND id = 2",
        ))
        .unwrap();
    let pid = u32::try_from(pid).unwrap();
    signal(pid, libc::SIGSTOP).unwrap();
    let commit = std::thread::spawn(move || zombie.batch_execute("COMMIT"));
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'")
        .unwrap();
    split.wait_held("sessions of the previous worker", LIMIT).unwrap();
    signal(pid, libc::SIGCONT).unwrap();
    assert!(commit.join().unwrap().is_err(), "the late COMMIT succeeded");
    client(&cluster)
        .batch_execute("UPDATE items SET val = 'after' WHERE tenant = 'moves' AND id = 4")
        .unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(rows(&cluster, 1).contains_key(&2));
}
