//! A decision that no shard has carried out is withdrawn, and one that a shard has carried out is not.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, cluster, cut_over_and_compare, plan, rows, state_of, to_pending};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::split::Split;
use shardmaster_tests::{standby, wait};
use std::collections::BTreeMap;

const WITHOUT_TARGET: &str = "SELECT shard_split_rollback($1, target_lost => true)";

/// Holds the cutover of a split right after its decision, before the target opens.
fn decided(cluster: &Cluster) -> Split<'_> {
    let split = plan(cluster);
    to_pending(&split);
    cluster.hold("cutover_decided").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    split
}

fn withdraw(cluster: &Cluster, split: &Split<'_>) {
    cluster.superuser().unwrap().execute(WITHOUT_TARGET, &[&split.id]).unwrap();
}

fn route(cluster: &Cluster) -> String {
    cluster.superuser().unwrap().query_one("SELECT shard_of('moves')", &[]).unwrap().get(0)
}

fn routing_version(cluster: &Cluster) -> i64 {
    cluster.superuser().unwrap().query_one("SELECT shard_routing_version()", &[]).unwrap().get(0)
}

fn write(cluster: &Cluster, server: usize, val: &str) -> Result<(), postgres::Error> {
    let update = format!("UPDATE items SET val = '{val}' WHERE tenant = 'moves' AND id = 4");
    cluster.servers[server].connect(DATABASE, CLIENT).unwrap().batch_execute(&update)
}

/// The source is the place of the keys again, with all rows, and the split can run again.
fn is_back(cluster: &Cluster, split: &Split<'_>, before: &BTreeMap<i32, String>) {
    split.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(route(cluster), "shard_a");
    assert_eq!(&rows(cluster, 0), before);
    write(cluster, 0, "back").unwrap();
}

/// Whatever ends the worker between the shards' answers and the commit that withdraws, the next one does the same.
#[test]
fn a_target_that_is_lost_before_it_opens() {
    let mut cluster = cluster(&["shardmaster.remote_timeout = '2s'"]);
    let id = decided(&cluster).id;
    let before = rows(&cluster, 0);
    let refused =
        cluster.superuser().unwrap().execute("SELECT shard_split_rollback($1)", &[&id]).unwrap_err();
    assert_eq!(state_of(&refused), "55000");
    let hint = refused.as_db_error().and_then(|error| error.hint().map(str::to_owned)).unwrap_or_default();
    assert!(hint.contains("target_lost => true"), "{hint}");
    assert_eq!(state_of(&write(&cluster, 0, "x").unwrap_err()), "SM002");

    cluster.servers[1].stop(Stop::Kill).unwrap();
    cluster.fault("withdraw_taken=kill").unwrap();
    let split = Split::of(&cluster, id);
    withdraw(&cluster, &split);
    split.wait_for_event("did not say whether it is open", LIMIT).unwrap();
    is_back(&cluster, &split, &before);
    let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
    assert!(log.contains("was terminated by signal 9"), "the worker was not killed");
    cluster.fault("").unwrap();

    // It comes back, and is cleaned.
    cluster.servers[1].run().unwrap();
    assert_eq!(state_of(&write(&cluster, 1, "there").unwrap_err()), "SM002");
    cluster.superuser().unwrap().batch_execute("SELECT shard_cleanup('shard_b')").unwrap();
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.batch_execute("DELETE FROM items WHERE tenant = 'moves'").unwrap();
    let split = Split::of(&cluster, id);
    to_pending(&split);
    cut_over_and_compare(&cluster, &split);
}

/// The worker, held before it opens the target, goes on: the target is open when the rollback comes.
#[test]
fn what_a_shard_has_carried_out_stands() {
    let cluster = cluster(&[]);
    let split = decided(&cluster);
    let version = routing_version(&cluster);
    withdraw(&cluster, &split);
    cluster.fault("").unwrap();
    split.wait_for_event("the rollback came too late", LIMIT).unwrap();
    split.wait("completed", LIMIT).unwrap();
    // No client was sent back meanwhile.
    assert_eq!((route(&cluster).as_str(), routing_version(&cluster)), ("shard_b", version));
    write(&cluster, 1, "there").unwrap();
    assert_eq!(state_of(&write(&cluster, 0, "x").unwrap_err()), "SM001");
    split.finish(LIMIT).unwrap();
}

/// Returns a standby of the master that knows what the master knows now, and nothing later.
fn standby_of_now(cluster: &Cluster) -> Server {
    let standby = standby::start(&cluster.master).unwrap();
    standby::separate(&cluster.master, &standby).unwrap();
    standby
}

/// A standby of the master takes over without the rollback that the old primary was asked for, and decides the
/// cutover. The old primary, which still runs, then rolls the split back on both shards.
#[test]
fn an_old_primary_of_the_master_rolls_back_what_the_new_one_has_decided() {
    let mut cluster = cluster(&["shardmaster.watch_interval = 0"]);
    let split = plan(&cluster);
    to_pending(&split);
    let id = split.id;
    let promoted = standby_of_now(&cluster);
    cluster.hold("rollback_begin").unwrap();
    split.call("rollback").unwrap();
    split.wait_held("rollback_begin", LIMIT).unwrap();
    let old = cluster.fail_over_to(promoted).unwrap();

    cluster.hold("cutover_decided").unwrap();
    let split = Split::of(&cluster, id);
    split.call("cutover").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    let before = rows(&cluster, 0);
    let mut of_old = old.superuser(DATABASE).unwrap();
    Cluster::set_by(&mut of_old, "shardmaster.fault", "").unwrap();
    let gone = "SELECT phase = 'rolled_back' FROM shardmaster.split_plan WHERE reverse_of IS NULL";
    wait::until_true(&mut of_old, "the old primary to roll back", LIMIT, gone).unwrap();
    drop(of_old);
    drop(old);

    cluster.fault("").unwrap();
    let waits = || {
        Ok(split.metric::<Option<String>>("waiting_for")?.filter(|why| why.contains("does not know split")))
    };
    wait::until("the new primary to say so", LIMIT, waits).map_err(|e| e.context(&split.describe())).unwrap();
    assert_eq!((route(&cluster).as_str(), rows(&cluster, 1).len()), ("shard_b", 0));
    withdraw(&cluster, &split);
    is_back(&cluster, &split, &before);
    assert_eq!(rows(&cluster, 1).len(), 0);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}
