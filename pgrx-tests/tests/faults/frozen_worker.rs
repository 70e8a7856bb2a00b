//! A worker that is stopped in the middle of a step, or whose links are silently gone. Its locks on the
//! shards are released after a while, and a slow worker is not mistaken for a stopped one.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, client, cut_over_and_compare, plan, to_pending};
use shardmaster_tests::relayed_cluster::RelayedCluster;
use shardmaster_tests::server::signal;
use std::time::Duration;

/// A transaction without any statement is ended after three times this.
const TIMEOUT: &str = "shardmaster.remote_timeout = '2s'";

fn worker(cluster: &Cluster) -> u32 {
    let query = "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    let pid: i32 = cluster.superuser().unwrap().query_one(query, &[]).unwrap().get(0);
    u32::try_from(pid).unwrap()
}

/// Checks that a client gets an exclusive lock on the table of each server.
fn lock_both(cluster: &Cluster) {
    for server in &cluster.servers {
        let lock = "SET lock_timeout = '20s'; BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; ROLLBACK";
        server.superuser(DATABASE).unwrap().batch_execute(lock).unwrap();
    }
}

#[test]
fn a_worker_that_is_stopped_in_a_step_gives_its_locks_back() {
    let stage = RelayedCluster::new(&[TIMEOUT]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    for point in ["step_window", "step_durable"] {
        stage.cluster.hold(point).unwrap();
        client(&stage.cluster)
            .batch_execute("UPDATE items SET val = val || '.' WHERE tenant = 'moves' AND id = 2")
            .unwrap();
        split.wait_held(point, LIMIT).unwrap();
        let pid = worker(&stage.cluster);
        signal(pid, libc::SIGSTOP).unwrap();
        lock_both(&stage.cluster);
        stage.cluster.fault("").unwrap();
        signal(pid, libc::SIGCONT).unwrap();
        split.wait_settled(LIMIT).unwrap();
    }
    cut_over_and_compare(&stage.cluster, &split);
}

#[test]
#[ignore = "make test-all: links that are gone; make test has a_worker_that_is_stopped_in_a_step_gives_its_locks_back"]
fn a_worker_whose_links_are_gone_gives_its_locks_back() {
    let stage = RelayedCluster::new(&[TIMEOUT]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    stage.cluster.hold("step_window").unwrap();
    split.wait_held("step_window", LIMIT).unwrap();
    stage.source.silence();
    stage.target.silence();
    lock_both(&stage.cluster);
    stage.cluster.fault("").unwrap();
    stage.source.mend();
    stage.target.mend();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// Each answer of the target arrives in time, and the sum of all answers of a step does not. The source's
/// transaction gets no other statement meanwhile, and is kept.
#[test]
#[ignore = "make test-all: one that is slow; make test has split::small_batches::a_target_that_is_slow_with_them_is_waited_for"]
fn a_worker_that_is_slow_keeps_its_transactions() {
    let stage =
        RelayedCluster::new(&["shardmaster.remote_timeout = '3s'", "shardmaster.cutover_timeout = '60s'"]);
    let split = plan(&stage.cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    // Six of its answers take longer than a transaction may be idle.
    stage.target.delay(Duration::from_millis(900));
    split.call("run_backfill").unwrap();
    split.wait("tailing", 3 * LIMIT).unwrap();
    stage.target.delay(Duration::ZERO);
    split.wait("cutover_pending", LIMIT).unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}
