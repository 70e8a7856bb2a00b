//! An operator says that a shard is gone for good. A worker that waits for its answer, of whatever kind,
//! stops waiting.

use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, plan, rows, source, to_pending};
use shardmaster_tests::relayed_cluster::RelayedCluster;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// A worker would wait this long for the shard's answer.
const PATIENT: &str = "shardmaster.remote_timeout = '120s'";
/// The worker notices the call within a second. The rest is the time of a rollback.
const SOON: Duration = Duration::from_secs(6);

fn stage() -> RelayedCluster {
    RelayedCluster::new(&[PATIENT, "shardmaster.watch_interval = 0"])
}

fn wait_for_silence(split: &Split<'_>, shard: &str) {
    split.wait_held(&format!("an answer of shard \"{shard}\""), LIMIT).unwrap();
}

/// Rolls back without the target, and checks that this is soon done and that the source has nothing of the
/// split any more.
fn rolls_back(stage: &RelayedCluster, split: &Split<'_>, what: &str) {
    let began = Instant::now();
    let mut master = stage.cluster.superuser().unwrap();
    master.execute("SELECT shard_split_rollback($1, target_lost => true)", &[&split.id]).unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shardmaster_agent'";
    assert_eq!(source(&stage.cluster).query_one(left, &[]).unwrap().get::<_, i64>(0), 0, "{what}");
}

/// The worker waits in a statement to the target: its BEGIN, its window, its commit, or the undoing of a statement.
#[test]
fn a_lost_target_is_not_waited_for_in_a_statement() {
    for point in ["step_durable", "install_guarded", "step_snapshot", "step_window", "rollback_batch"]
        .into_iter()
        .take(at_most(1))
    {
        let stage = stage();
        let split = plan(&stage.cluster);
        let undoes = point == "rollback_batch";
        if undoes {
            to_pending(&split);
        }
        stage.cluster.hold(point).unwrap();
        if undoes {
            split.call("rollback").unwrap();
        } else {
            split.call("start_dual_write").unwrap();
            split.call("run_backfill").unwrap();
        }
        split.wait_held(point, LIMIT).unwrap();
        stage.target.silence();
        stage.cluster.fault("").unwrap();
        wait_for_silence(&split, "shard_b");
        rolls_back(&stage, &split, point);
    }
}

#[test]
#[ignore = "make test-all: a copy; make test has a_lost_target_is_not_waited_for_in_a_statement"]
fn a_lost_target_is_not_waited_for_in_a_copy() {
    let stage = stage();
    let more = "INSERT INTO items SELECT 'moves', i, repeat('x', 2000), i FROM generate_series(1000, 30000) i; ANALYZE items";
    source(&stage.cluster).batch_execute(more).unwrap();
    let split = plan(&stage.cluster);
    stage.cluster.hold("step_window").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_window", LIMIT).unwrap();
    stage.target.throttle(2 << 20);
    stage.cluster.fault("").unwrap();
    let mut target = stage.cluster.servers[1].superuser("app").unwrap();
    let copies = "SELECT EXISTS (SELECT 1 FROM pg_stat_progress_copy WHERE tuples_processed > 0)";
    wait::until_true(&mut target, "rows on their way", LIMIT, copies).unwrap();
    stage.target.silence();
    wait_for_silence(&split, "shard_b");
    rolls_back(&stage, &split, "copy");
}

/// The server itself hangs, and not the link to it.
#[test]
#[ignore = "make test-all: a server that hangs; make test has a_lost_target_is_not_waited_for_in_a_statement"]
fn a_lost_target_that_hangs_is_not_waited_for() {
    let stage = stage();
    let split = plan(&stage.cluster);
    to_pending(&split);
    stage.cluster.servers[1].hang().unwrap();
    source(&stage.cluster).batch_execute("UPDATE items SET val = 'x' WHERE tenant = 'moves'").unwrap();
    wait_for_silence(&split, "shard_b");
    rolls_back(&stage, &split, "hangs");
    stage.cluster.servers[1].wake().unwrap();
}

/// The operator says this of the source, after the decision.
#[test]
fn a_lost_source_is_not_waited_for() {
    for point in ["cutover_opened", "finish_begin"].into_iter().take(at_most(1)) {
        let stage = stage();
        let split = plan(&stage.cluster);
        to_pending(&split);
        let before = rows(&stage.cluster, 0);
        stage.cluster.hold(point).unwrap();
        split.call("cutover").unwrap();
        if point == "finish_begin" {
            split.wait("completed", LIMIT).unwrap();
            split.call("finish").unwrap();
        }
        split.wait_held(point, LIMIT).unwrap();
        stage.source.silence();
        stage.cluster.fault("").unwrap();
        wait::until("the worker to wait for the source", LIMIT, || {
            let text: Option<String> = split.metric("waiting_for")?;
            Ok(text.is_some_and(|text| text.contains("shard \"shard_a\"")).then_some(()))
        })
        .unwrap();
        let began = Instant::now();
        let mut master = stage.cluster.superuser().unwrap();
        master.execute("SELECT shard_split_finish($1, source_lost => true)", &[&split.id]).unwrap();
        split.wait("finished", LIMIT).unwrap();
        assert!(began.elapsed() < SOON, "{point}: {:?}", began.elapsed());
        assert_eq!(rows(&stage.cluster, 1), before);
    }
}
