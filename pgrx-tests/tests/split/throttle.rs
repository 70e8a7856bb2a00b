//! A copy waits for the standbys of its target, reports it, and changes continue to be applied meanwhile.

use shardmaster_tests::cluster::{Cluster, MOVER};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, cluster, cut_over_and_compare, plan};
use shardmaster_tests::server::Server;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Starts a copy that takes some seconds. Its target has a standby that replays nothing.
fn copying(cluster: &Cluster) -> (Split<'_>, Server) {
    let more = "INSERT INTO items SELECT 'moves', i, repeat('x', 1000), i FROM generate_series(1001, 31000) i; ANALYZE items";
    by_superuser(cluster, 0, more);
    let mut standby = Server::standby_of(&cluster.servers[1], "standby").unwrap();
    let primary = format!(
        "ALTER SYSTEM SET primary_conninfo = 'host={} user=postgres application_name=reader'",
        cluster.servers[1].socket_dir().display()
    );
    standby.run().unwrap();
    let mut reader = standby.superuser("postgres").unwrap();
    reader.batch_execute(&primary).unwrap();
    reader.batch_execute("SELECT pg_reload_conf()").unwrap();
    let streams =
        "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'reader' AND state = 'streaming'";
    let mut target = cluster.servers[1].superuser("postgres").unwrap();
    wait::until("the standby to stream", LIMIT, || {
        Ok((target.query_one(streams, &[])?.get::<_, i64>(0) == 1).then_some(()))
    })
    .unwrap();
    reader.batch_execute("SELECT pg_wal_replay_pause()").unwrap();
    let split = plan(cluster);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    (split, standby)
}

const SLOWLY: [&str; 2] = ["shardmaster.max_copy_rate = '4MB'", "shardmaster.max_standby_lag = '500ms'"];

#[test]
fn a_copy_waits_for_a_standby_and_goes_on() {
    let cluster = cluster(&SLOWLY);
    by_superusers(&cluster, &format!("GRANT pg_monitor TO {MOVER}"));
    let (split, standby) = copying(&cluster);
    let waits = |split: &Split<'_>| -> shardmaster_tests::Result<bool> {
        let reason: Option<String> = split.metric("waiting_for")?;
        Ok(reason.is_some_and(|reason| reason.contains("standby \"reader\" of shard \"shard_b\", ")))
    };
    wait::until("the copy to wait", LIMIT, || Ok(waits(&split)?.then_some(()))).unwrap();
    // No more rows are copied, but changes are applied.
    let copied: i64 = split.metric("total_rows_copied").unwrap();
    by_superuser(&cluster, 0, "UPDATE items SET val = 'changed' WHERE tenant = 'moves' AND id <= 600");
    wait::until("the changes to come over", LIMIT, || {
        Ok((split.metric::<Option<i64>>("lag_rows")? == Some(0)).then_some(()))
    })
    .unwrap();
    assert!(waits(&split).unwrap());
    assert_eq!(split.metric::<i64>("total_rows_copied").unwrap(), copied);
    standby.superuser("postgres").unwrap().batch_execute("SELECT pg_wal_replay_resume()").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// If the mover may not read the state of standbys, it does not wait and reports that.
#[test]
#[ignore = "make test-all: fewer rights; make test has a_copy_waits_for_a_standby_and_goes_on"]
fn a_mover_that_may_not_look_says_so() {
    let cluster = cluster(&SLOWLY);
    by_superusers(&cluster, &format!("REVOKE pg_monitor, pg_read_all_stats FROM {MOVER}"));
    let (split, _standby) = copying(&cluster);
    split.wait_for_event("GRANT pg_monitor to it", LIMIT).unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
}

/// A query of the operator decides when the copy pauses, and gives the reason. If it fails, the copy continues.
#[test]
#[ignore = "make test-all: a query of one's own; make test has a_copy_waits_for_a_standby_and_goes_on"]
fn a_copy_waits_for_what_the_operator_asks() {
    let cluster = cluster(&["shardmaster.max_copy_rate = '4MB'"]);
    by_superusers(&cluster, &format!("CREATE TABLE busy (why text); GRANT SELECT ON busy TO {MOVER}"));
    by_superuser(&cluster, 1, "INSERT INTO busy VALUES ('the nightly job')");
    cluster.set("shardmaster.throttle_query", "SELECT why FROM public.busy;").unwrap();
    let more = "INSERT INTO items SELECT 'moves', i, repeat('x', 1000), i FROM generate_series(1001, 21000) i; ANALYZE items";
    by_superuser(&cluster, 0, more);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    let waits = || {
        let reason: Option<String> = split.metric("waiting_for")?;
        let wanted = "shardmaster.throttle_query on shard \"shard_b\": the nightly job";
        Ok(reason.is_some_and(|reason| reason.contains(wanted)).then_some(()))
    };
    wait::until("the copy to wait", LIMIT, waits).unwrap();
    let copied: i64 = split.metric("total_rows_copied").unwrap();
    assert!(copied < 20_000, "{copied}");
    cluster.set("shardmaster.throttle_query", "SELECT pg_sleep(10)").unwrap();
    split.wait_for_event("shardmaster.throttle_query has no effect on shard \"shard_b\"", LIMIT).unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}
