//! Servers that hang, links that fall silent, targets that do not come back: writers of a healthy source are
//! served, or told to retry, within the deadline of a cutover. An operator's request is carried out, or the
//! operator is told what it waits for.

use shardmaster_tests::cluster::{CLIENT, DATABASE, MOVER};
use shardmaster_tests::fixture::{
    LIMIT, client, cut_over_and_compare, plan, rows, source, state_of, to_pending,
};
use shardmaster_tests::relay::Relay;
use shardmaster_tests::relayed_cluster::{
    GRACE, RelayedCluster, TIMEOUT, given_up, interrupt, is_routed_back, writes_within,
};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// At each of these points the source is fenced, or about to be, and the target is still needed for the decision.
const POINTS: [&str; 4] = ["cutover_disabled", "cutover_locked", "cutover_fenced", "cutover_applied"];

#[test]
fn a_target_that_hangs_in_the_cutover_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    for point in POINTS {
        interrupt(&split, &stage.cluster, point, || stage.cluster.servers[1].hang().unwrap());
        writes_within(&mut writer, TIMEOUT + GRACE);
        given_up(&split);
        assert!(is_routed_back(&stage.cluster), "{point}");
        stage.cluster.servers[1].wake().unwrap();
        split.wait_settled(LIMIT).unwrap();
        // Nobody has requested the cutover again.
        assert_eq!(split.phase().unwrap(), "cutover_pending", "{point}");
    }
    cut_over_and_compare(&stage.cluster, &split);
}

#[test]
#[ignore = "make test-all: a target that ends; make test has a_target_that_hangs_in_the_cutover_keeps_no_writer_out"]
fn a_target_that_is_gone_in_the_cutover_keeps_no_writer_out() {
    let mut stage = RelayedCluster::new(&[]);
    {
        let split = plan(&stage.cluster);
        to_pending(&split);
        let relay = &stage.target;
        interrupt(&split, &stage.cluster, "cutover_fenced", || relay.cut());
        writes_within(&mut client(&stage.cluster), TIMEOUT + GRACE);
        given_up(&split);
    }
    // The target does not come back, so the operator rolls back without it.
    stage.cluster.servers[1].stop(Stop::Immediate).unwrap();
    let split = Split::of(&stage.cluster, 1);
    split.call("rollback").unwrap();
    let waits = || {
        let text: Option<String> = split.metric("waiting_for")?;
        Ok(text.is_some_and(|t| t.contains("shard \"shard_b\"") && t.contains("target_lost")).then_some(()))
    };
    wait::until("the operator to be told what helps", LIMIT, waits).unwrap();
    let mut master = stage.cluster.superuser().unwrap();
    master.execute("SELECT shard_split_rollback($1, target_lost => true)", &[&split.id]).unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shardmaster_agent'";
    assert_eq!(source(&stage.cluster).query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    // The ledger still lists what the target has, in case it comes back.
    let open = "SELECT count(*) FROM shardmaster.split_ledger WHERE removed_at IS NULL AND side = 'target'";
    assert_eq!(master.query_one(open, &[]).unwrap().get::<_, i64>(0), 1);
    stage.cluster.servers[1].run().unwrap();
    stage.target.mend();
    master.execute("SELECT * FROM shard_cleanup('shard_b')", &[]).unwrap();
    let mut target = stage.cluster.servers[1].superuser(DATABASE).unwrap();
    assert_eq!(target.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    // The guards are no longer listed.
    let told = "SELECT count(*) FROM shard_guards()";
    assert_eq!(master.query_one(told, &[]).unwrap().get::<_, i64>(0), 0);
}

/// The decision is made, and the source does not come back. The target opens without it.
#[test]
#[ignore = "make test-all: one moment; make test has faults::disasters::the_source_is_gone"]
fn a_source_that_is_gone_after_the_decision_keeps_nobody_out() {
    let mut stage = RelayedCluster::new(&[]);
    let before = {
        let split = plan(&stage.cluster);
        to_pending(&split);
        let before = rows(&stage.cluster, 0);
        stage.cluster.hold("cutover_decided").unwrap();
        split.call("cutover").unwrap();
        split.wait_held("cutover_decided", LIMIT).unwrap();
        before
    };
    stage.cluster.servers[0].stop(Stop::Immediate).unwrap();
    stage.cluster.fault("").unwrap();
    let split = Split::of(&stage.cluster, 1);
    let mut master = stage.cluster.superuser().unwrap();
    master.execute("SELECT shard_split_finish($1, source_lost => true)", &[&split.id]).unwrap();
    split.wait("finished", LIMIT).unwrap();
    assert_eq!(rows(&stage.cluster, 1), before);
    let mut target = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    target.batch_execute("UPDATE items SET val = 'new' WHERE tenant = 'moves'").unwrap();
    // The source is back after all. Nothing was deleted there, and the rest is cleaned up.
    stage.cluster.servers[0].run().unwrap();
    assert_eq!(rows(&stage.cluster, 0), before);
    master.execute("SELECT * FROM shard_cleanup('shard_a')", &[]).unwrap();
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shardmaster_agent'";
    assert_eq!(source(&stage.cluster).query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
}

#[test]
fn a_link_that_falls_silent_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    for point in POINTS {
        interrupt(&split, &stage.cluster, point, || stage.target.silence());
        writes_within(&mut writer, TIMEOUT + GRACE);
        given_up(&split);
        stage.target.mend();
        split.wait_settled(LIMIT).unwrap();
    }
    cut_over_and_compare(&stage.cluster, &split);
}

/// The source itself lives, and only the link to it is gone. The fence ends by itself.
#[test]
#[ignore = "make test-all: a fence without its worker; make test has a_link_that_falls_silent_keeps_no_writer_out"]
fn a_source_out_of_reach_of_its_worker_serves_its_writers() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    // This is after the lock and before the state, so only the fence keeps writers out.
    interrupt(&split, &stage.cluster, "cutover_locked", || stage.source.silence());
    writes_within(&mut writer, TIMEOUT + GRACE);
    stage.source.mend();
    given_up(&split);
    split.wait_settled(LIMIT).unwrap();
    // This is after the state, so writers are told to retry and do not wait.
    interrupt(&split, &stage.cluster, "cutover_fenced", || stage.source.silence());
    let began = Instant::now();
    let answer = writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id = 4");
    assert!(began.elapsed() < TIMEOUT + GRACE, "{:?}", began.elapsed());
    assert_eq!(state_of(&answer.unwrap_err()), "SM002");
    writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'stays'").unwrap();
    stage.source.mend();
    writes_within(&mut writer, LIMIT);
    given_up(&split);
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

#[test]
#[ignore = "make test-all: one connection of several; make test has a_link_that_falls_silent_keeps_no_writer_out"]
fn one_connection_lost_without_a_word_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    for purpose in ["reader", "control", "fence"] {
        interrupt(&split, &stage.cluster, "cutover_locked", || stage.source.silence_only(purpose));
        writes_within(&mut writer, TIMEOUT + GRACE);
        given_up(&split);
        stage.source.mend();
        split.wait_settled(LIMIT).unwrap();
    }
    interrupt(&split, &stage.cluster, "cutover_fenced", || stage.target.silence_only("writer"));
    writes_within(&mut writer, TIMEOUT + GRACE);
    given_up(&split);
    stage.target.mend();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

#[test]
#[ignore = "make test-all: a pause; make test has cutover::interrupted::an_open_transaction_on_the_master_keeps_no_writer_out"]
fn a_pause_holds_nobody_back_when_a_cutover_is_given_up() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    interrupt(&split, &stage.cluster, "cutover_fenced", || {
        split.call("pause").unwrap();
        stage.target.cut();
    });
    writes_within(&mut client(&stage.cluster), TIMEOUT + GRACE);
    given_up(&split);
    assert!(is_routed_back(&stage.cluster));
    stage.target.mend();
    split.call("resume").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// A later run of the master cannot know whether the run that noted a possible decision has decided. It asks
/// the target.
#[test]
#[ignore = "make test-all: another run of the master; make test has masters::failover::a_decision_that_the_master_lost_is_adopted"]
fn a_master_that_may_have_forgotten_asks_the_target() {
    let mut stage = RelayedCluster::new(&[]);
    {
        let split = plan(&stage.cluster);
        to_pending(&split);
        interrupt(&split, &stage.cluster, "cutover_applied", || stage.target.cut());
    }
    // The worker may do something in between, but makes no progress without the target.
    stage.cluster.master.restart(Stop::Immediate).unwrap();
    let split = Split::of(&stage.cluster, 1);
    let state = "SELECT state FROM shardmaster_agent.side";
    let is = |wanted: &str| {
        let found: String = source(&stage.cluster).query_one(state, &[]).unwrap().get(0);
        found == wanted
    };
    if is("fenced") {
        let waits = || {
            let text: Option<String> = split.metric("waiting_for")?;
            Ok(text.is_some_and(|text| text.contains("only the target knows")).then_some(()))
        };
        wait::until("the operator to be told why", LIMIT, waits).unwrap();
        assert!(is("fenced"));
    }
    stage.target.mend();
    writes_within(&mut client(&stage.cluster), LIMIT);
    assert!(is("capture"));
}

/// The line takes twenty milliseconds in each direction, and rows change all the time.
#[test]
#[ignore = "make test-all: a long line without load; make test has faults::networks::splits_go_over_long_lines_under_load"]
fn a_distant_target_is_caught_up() {
    let stage = RelayedCluster::new(&["shardmaster.cutover_timeout = '20s'"]);
    stage.source.delay(Duration::from_millis(20));
    stage.target.delay(Duration::from_millis(20));
    let split = plan(&stage.cluster);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    let mut writer = client(&stage.cluster);
    wait::until("the split to be caught up under writes", LIMIT, || {
        writer.batch_execute("UPDATE items SET val = 'again' WHERE tenant = 'moves' AND id = 6")?;
        Ok((split.phase()? == "cutover_pending").then_some(()))
    })
    .unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// If a row takes longer to copy than writers should wait, it is copied before the fence.
#[test]
fn a_big_row_changed_before_the_fence_gives_the_cutover_up() {
    let stage = RelayedCluster::new(&["shardmaster.cutover_max_size = '1MB'"]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    interrupt(&split, &stage.cluster, "cutover_disabled", || {
        let big =
            "UPDATE items SET val = repeat(md5(random()::text), 100000) WHERE tenant = 'moves' AND id = 8";
        writer.batch_execute(big).unwrap();
    });
    writes_within(&mut writer, TIMEOUT + GRACE);
    let error = split.wait("completed", TIMEOUT + GRACE * 2).unwrap_err();
    assert!(error.to_string().contains("more than 1 MB of changed rows"), "{error}");
    wait::until("the row to be brought over", LIMIT, || {
        Ok(rows(&stage.cluster, 1).get(&8).is_some_and(|val| val.len() > 1_000_000).then_some(()))
    })
    .unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// Of two hosts, the first accepts connections and says nothing.
#[test]
fn a_silent_host_is_passed_over() {
    let stage = RelayedCluster::new(&["shardmaster.remote_timeout = '3s'"]);
    let silent = Relay::before(&stage.cluster.master).unwrap();
    silent.silence();
    let host = |conninfo: String| conninfo.split_whitespace().next().unwrap_or_default().replace("host=", "");
    let hosts = format!(
        "host={},{} port=5432,5432 dbname={DATABASE} user={MOVER}",
        host(silent.conninfo(DATABASE, MOVER)),
        host(stage.source.conninfo(DATABASE, MOVER))
    );
    stage
        .cluster
        .superuser()
        .unwrap()
        .execute("UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'", &[&hosts])
        .unwrap();
    assert_eq!(plan(&stage.cluster).findings().unwrap(), [""; 0]);
}

/// A writer's session has nothing of ours in it.
#[test]
fn a_writer_finds_its_own_last_value() {
    let stage = RelayedCluster::new(&[]);
    for server in &stage.cluster.servers {
        let mut owner = server.superuser(DATABASE).unwrap();
        owner.batch_execute("CREATE SEQUENCE numbers; GRANT USAGE ON SEQUENCE numbers TO PUBLIC").unwrap();
    }
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    let number: i64 = writer.query_one("SELECT nextval('numbers')", &[]).unwrap().get(0);
    writer.batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id < 100").unwrap();
    let last: i64 = writer.query_one("SELECT lastval()", &[]).unwrap().get(0);
    assert_eq!(last, number);
    let left = "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE 'shardmaster%'";
    assert_eq!(writer.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    let temporary = "SELECT pg_my_temp_schema() = 0";
    assert!(writer.query_one(temporary, &[]).unwrap().get::<_, bool>(0));
    cut_over_and_compare(&stage.cluster, &split);
}

/// Renaming a key or the shard-by column breaks no writer.
#[test]
#[ignore = "make test-all: the same while a split runs; make test has routing::redirects::a_renamed_column_breaks_no_writer"]
fn a_renamed_column_breaks_no_writer() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    let mut owner = source(&stage.cluster);
    for (column, name) in [("id", "number"), ("tenant", "customer")] {
        owner.batch_execute(&format!("ALTER TABLE items RENAME {column} TO {name}")).unwrap();
    }
    writer.batch_execute("UPDATE items SET val = 'renamed' WHERE customer = 'moves' AND number = 2").unwrap();
    writer.batch_execute("DELETE FROM items WHERE customer = 'moves' AND number = 4").unwrap();
    writer.batch_execute("UPDATE items SET val = 'renamed' WHERE customer = 'stays'").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert!(error.to_string().contains("items"), "{error}");
    for (column, name) in [("id", "number"), ("tenant", "customer")] {
        owner.batch_execute(&format!("ALTER TABLE items RENAME {name} TO {column}")).unwrap();
    }
    split.call("replay_tail").unwrap();
    split.wait_settled(LIMIT).unwrap();
    assert!(!rows(&stage.cluster, 0).contains_key(&4));
    cut_over_and_compare(&stage.cluster, &split);
}

/// A copy that has to start again does so as a copy, and not in the pauses between two attempts at a cutover.
#[test]
#[ignore = "make test-all: the cutover first; make test has split::protocol::a_queue_past_its_lease_starts_the_copy_again"]
fn a_copy_that_starts_again_gives_the_cutover_up() {
    // The copy takes many steps.
    let stage = RelayedCluster::new(&["shardmaster.step_time = '10ms'"]);
    let more = "INSERT INTO items SELECT 'moves', i, repeat('x', 500), i FROM generate_series(1000, 10000) i; ANALYZE items";
    source(&stage.cluster).batch_execute(more).unwrap();
    let split = plan(&stage.cluster);
    to_pending(&split);
    interrupt(&split, &stage.cluster, "cutover_begin", || {
        source(&stage.cluster).batch_execute("VACUUM FULL items").unwrap();
    });
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert!(error.to_string().contains("the copy, which had to start again"), "{error}");
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// A transaction that has drawn from a sequence of the target prevents it from being raised. The transaction
/// is named, and others that draw do not queue behind us. A sequence that is far enough ahead need not be
/// raised.
#[test]
#[ignore = "make test-all: the target's sequences; make test has sequences::advance::numbers_that_are_drawn_behind_the_fence_are_not_given_out_again"]
fn a_sequence_in_use_on_the_target_is_named_or_left_alone() {
    let stage = RelayedCluster::new(&[]);
    number_codes(&stage);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut target = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    target.batch_execute("BEGIN; SELECT nextval('codes')").unwrap();
    split.call("cutover").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err();
    assert!(error.to_string().contains("has used sequence public.codes"), "{error}");
    target.batch_execute("COMMIT").unwrap();
    stage.cluster.servers[1]
        .superuser(DATABASE)
        .unwrap()
        .batch_execute("SELECT setval('codes', 100000)")
        .unwrap();
    target.batch_execute("BEGIN; SELECT nextval('codes')").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
    target.batch_execute("COMMIT").unwrap();
}

/// The cutover waits for short transactions that draw from a sequence, before it keeps any client out.
#[test]
#[ignore = "make test-all: who draws from a sequence; make test has sequences::advance::numbers_that_are_drawn_behind_the_fence_are_not_given_out_again"]
fn a_cutover_waits_for_who_has_drawn_from_a_sequence() {
    let stage = RelayedCluster::new(&["shardmaster.cutover_timeout = '30s'"]);
    number_codes(&stage);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut target = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    target.batch_execute("BEGIN; SELECT nextval('codes')").unwrap();
    split.call("cutover").unwrap();
    let waits = || {
        let reason = split.metric::<Option<String>>("waiting_for")?;
        Ok(reason.is_some_and(|reason| reason.contains("has used sequence public.codes")).then_some(()))
    };
    wait::until("the cutover to wait", LIMIT, waits).unwrap();
    let mut writer = client(&stage.cluster);
    writer.batch_execute("UPDATE items SET val = 'meanwhile' WHERE tenant = 'moves' AND id = 1").unwrap();
    target.batch_execute("COMMIT").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&stage.cluster, 0), rows(&stage.cluster, 1));
}

/// Both sides number one column by a sequence.
fn number_codes(stage: &RelayedCluster) {
    for server in &stage.cluster.servers {
        server
            .superuser(DATABASE)
            .unwrap()
            .batch_execute(
                "ALTER TABLE items OWNER TO app_owner; SET ROLE app_owner; CREATE SEQUENCE codes OWNED BY items.code;
                 ALTER TABLE items ALTER code SET DEFAULT nextval('codes'); GRANT USAGE ON SEQUENCE codes TO PUBLIC;
                 SELECT nextval('codes')",
            )
            .unwrap();
    }
}

/// Cleanup does not remove what a rolled back split that runs again needs.
#[test]
#[ignore = "make test-all: a plan that runs again; make test has check::refusals::a_new_master_cleans_up_after_a_lost_one"]
fn cleanup_leaves_a_split_alone_that_runs_again() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    stage.cluster.hold("install_done").unwrap();
    split.call("start_dual_write").unwrap();
    split.wait_held("install_done", LIMIT).unwrap();
    let mut master = stage.cluster.superuser().unwrap();
    for shard in ["shard_a", "shard_b"] {
        assert!(master.query("SELECT * FROM shard_cleanup($1)", &[&shard]).unwrap().is_empty(), "{shard}");
    }
    stage.cluster.fault("").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// A worker that the machine has delayed past its deadline blames no healthy shard.
#[test]
#[ignore = "make test-all: what a late worker says; make test has a_target_that_hangs_in_the_cutover_keeps_no_writer_out"]
fn a_worker_that_comes_too_late_says_so() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    interrupt(&split, &stage.cluster, "cutover_locked", || {
        let began = Instant::now();
        let late = || Ok((began.elapsed() > TIMEOUT + GRACE / 2).then_some(()));
        wait::until("the deadline to pass", LIMIT, late).unwrap();
    });
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(error.contains("cutover aborted"), "{error}");
    assert!(error.contains("its own worker, which was delayed"), "{error}");
    let problems = "SELECT string_agg(problem, '; ') FROM shard_split_diagnose($1)";
    let told: String = stage.cluster.superuser().unwrap().query_one(problems, &[&split.id]).unwrap().get(0);
    assert!(told.contains("its last error: cutover aborted"), "{told}");
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// A rollback waits for a target that accepts connections and says nothing, until the operator says that the
/// target is lost.
#[test]
#[ignore = "make test-all: a target that takes connections; make test has faults::lost_shard::a_lost_target_is_not_waited_for_in_a_statement"]
fn a_lost_target_is_not_connected_to_any_longer() {
    // No step is running when the line falls silent. Otherwise the worker would wait for the step first.
    let stage = RelayedCluster::new(&["shardmaster.tail_interval = '60s'"]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut master = stage.cluster.superuser().unwrap();
    let rests =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'waiting for shard_split_cutover%')";
    wait::until_true(&mut master, "the worker to rest", LIMIT, rests).unwrap();
    stage.target.silence();
    split.call("rollback").unwrap();
    split.wait_held("connecting to shard \"shard_b\"", LIMIT).unwrap();
    let began = Instant::now();
    master.execute("SELECT shard_split_rollback($1, target_lost => true)", &[&split.id]).unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// The cutover is requested during the step that finds that the copy starts again.
#[test]
#[ignore = "make test-all: a copy that starts again; make test has split::protocol::a_queue_past_its_lease_starts_the_copy_again"]
fn a_cutover_asked_for_as_the_copy_starts_again_is_given_up_by_name() {
    let stage = RelayedCluster::new(&["shardmaster.step_time = '10ms'"]);
    let more = "INSERT INTO items SELECT 'moves', i, repeat('x', 500), i FROM generate_series(1000, 10000) i; ANALYZE items";
    source(&stage.cluster).batch_execute(more).unwrap();
    let split = plan(&stage.cluster);
    to_pending(&split);
    stage.cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    source(&stage.cluster).batch_execute("VACUUM FULL items").unwrap();
    split.call("cutover").unwrap();
    stage.cluster.fault("").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(error.contains("the copy, which had to start again"), "{error}");
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}
