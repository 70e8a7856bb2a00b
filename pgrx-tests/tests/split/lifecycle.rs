//! Splits under load, with everything that a writer can do, on servers and inside the master.

use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::fixture::{self, load};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use shardmaster_tests::workload::{Options, Sharding, Workload};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn hard_options() -> Options {
    load(Sharding::Directory(vec![0; 8]))
}

/// Runs one split from plan to finish, with writes before and after. The guard of the old shard stays.
fn split<'a>(
    cluster: &'a Cluster,
    workload: &Workload,
    source: &str,
    target: &str,
    tenants: &[&str],
) -> Split<'a> {
    let split = Split::plan(cluster, source, target, tenants).unwrap();
    split.run(|_| ()).unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split
}

fn forth_and_back(cluster: &Cluster) {
    let mut workload = Workload::prepare(cluster, hard_options()).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    let moving: Vec<String> = workload.options().moving_names().into_iter().map(str::to_owned).collect();
    let moving: Vec<&str> = moving.iter().map(String::as_str).collect();
    split(cluster, &workload, "shard_a", "shard_b", &moving);
    // The keys return to a shard that still has the guard of the first split.
    split(cluster, &workload, "shard_b", "shard_a", &moving[..2]);
    workload.stop().unwrap();
    let report = workload.report(cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
#[ignore = "make test-all: servers of one version; make test has split::major_versions::tenants_to_18_and_back"]
fn forth_and_back_between_servers() {
    forth_and_back(&Cluster::servers(2, &[]).unwrap());
}

#[test]
#[ignore = "make test-all: shards in one database; make test has split::major_versions::tenants_to_18_and_back"]
fn forth_and_back_inside_the_master() {
    forth_and_back(&Cluster::namespaces(2, &[]).unwrap());
}

#[test]
#[ignore = "make test-all: three servers; make test has split::major_versions::tenants_to_18_and_back"]
fn a_chain_over_three_servers() {
    let cluster = Cluster::servers(3, &[]).unwrap();
    let mut workload = Workload::prepare(&cluster, hard_options()).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    let first = split(&cluster, &workload, "shard_a", "shard_b", &["tenant-00", "tenant-02"]);
    first.drop_guard().unwrap();
    split(&cluster, &workload, "shard_b", "shard_c", &["tenant-02"]);
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
#[ignore = "make test-all: load; make test has cutover::rollback::from_every_phase"]
fn a_rolled_back_plan_runs_again() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let mut workload = Workload::prepare(&cluster, hard_options()).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["tenant-00", "tenant-02"]).unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split.call("start_dual_write").unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Splits of different keys at the same time: two in one direction, then one in each direction.
#[test]
#[ignore = "make test-all: two splits under load; make test has faults::walks::calls_in_any_order_with_faults"]
fn two_splits_side_by_side() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let mut workload = Workload::prepare(&cluster, hard_options()).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    let side_by_side = |first: (&str, &str, &[&str]), second: (&str, &str, &[&str])| {
        std::thread::scope(|scope| {
            for (source, target, tenants) in [first, second] {
                let (cluster, workload) = (&cluster, &workload);
                scope.spawn(move || split(cluster, workload, source, target, tenants));
            }
        });
    };
    side_by_side(
        ("shard_a", "shard_b", &["tenant-00", "tenant-02"]),
        ("shard_a", "shard_b", &["tenant-01", "tenant-04"]),
    );
    let overlap = Split::plan(&cluster, "shard_a", "shard_b", &["tenant-03"]).unwrap();
    let refused = Split::plan(&cluster, "shard_a", "shard_b", &["tenant-05", "tenant-03"]).err().unwrap();
    assert_eq!(refused.sqlstate(), Some("55006"), "{refused}");
    overlap.call("rollback").unwrap();
    overlap.wait("rolled_back", LIMIT).unwrap();
    side_by_side(("shard_b", "shard_a", &["tenant-00"]), ("shard_a", "shard_b", &["tenant-03", "tenant-05"]));
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// The first two splits of a shard. The second one has waited for the first, which has created what both
/// need. A session that hashes buckets has read the catalog before, so it does not happen to process changes
/// while it waits.
#[test]
fn two_splits_come_to_a_shard_that_has_seen_none() {
    let cluster = fixture::cluster(&[]);
    for shard in &cluster.shards {
        let table = format!("SET ROLE {OWNER}; CREATE TABLE event (id bigint PRIMARY KEY)");
        cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
    }
    let keyspace = "SELECT shard_keyspace_add('events', 'hash', 4, 'bigint', '{shard_a}');
                    SELECT shard_table_add('event', 'id', 'events')";
    cluster.superuser().unwrap().batch_execute(keyspace).unwrap();
    let mut other = cluster.servers[1].connect(DATABASE, MOVER).unwrap();
    let bootstrap = include_str!("../../../sql/agent/bootstrap.sql");
    // This is the other split, in the middle of its installation.
    other.batch_execute(&format!("BEGIN; {bootstrap}")).unwrap();
    let plan = "SELECT shard_split_plan('shard_a', 'shard_b', '{0}', keyspace => 'events')";
    let split = Split::plan_by(&cluster, plan).unwrap();
    split.call("start_dual_write").unwrap();
    let mut look = cluster.servers[1].superuser(DATABASE).unwrap();
    let waits = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted";
    wait::until_true(&mut look, "the installation to wait", LIMIT, waits).unwrap();
    other.batch_execute("COMMIT").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
}

/// The permanent part of the agent's schema is created once. If something is missing or was changed, it is
/// created again. A split that begins meanwhile does not wait for other splits.
#[test]
fn the_agents_schema_is_made_where_it_is_missing() {
    let cluster = fixture::cluster(&[]);
    let mut shard = cluster.servers[0].superuser(DATABASE).unwrap();
    let begin = |key: &str| {
        let split = Split::plan(&cluster, "shard_a", "shard_b", &[key]).unwrap();
        fixture::to_pending(&split);
        split.id
    };
    let made = "SELECT string_agg(concat_ws(' ', proname, xmin), ', ' ORDER BY proname) FROM pg_proc
                 WHERE pronamespace = 'shardmaster_agent'::regnamespace AND proname IN ('is_mover', 'redirect', 'reference_guard')";
    let mut made = || shard.query_one(made, &[]).unwrap().get::<_, String>(0);
    begin("moves");
    let before = made();
    // Another session creates or drops only objects of its own split.
    let mut other = cluster.servers[0].superuser(DATABASE).unwrap();
    other.batch_execute("BEGIN; LOCK TABLE shardmaster_agent.master IN ROW EXCLUSIVE MODE").unwrap();
    let second = begin("stays");
    other.batch_execute("ROLLBACK").unwrap();
    assert_eq!(made(), before);
    for damage in [
        "DROP FUNCTION shardmaster_agent.reference_guard",
        "ALTER FUNCTION shardmaster_agent.is_mover SECURITY INVOKER",
        "DROP TABLE shardmaster_agent.overflow",
        "UPDATE shardmaster_agent.made SET digest = 'of another version'",
    ] {
        let split = Split::of(&cluster, second);
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        let before = made();
        other.batch_execute(damage).unwrap();
        fixture::to_pending(&split);
        let whole = "SELECT to_regproc('shardmaster_agent.reference_guard') IS NOT NULL AND to_regclass('shardmaster_agent.overflow') IS NOT NULL
                        AND (SELECT prosecdef FROM pg_proc WHERE oid = to_regproc('shardmaster_agent.is_mover'))";
        assert!(other.query_one(whole, &[]).unwrap().get::<_, bool>(0), "{damage}");
        assert_ne!(made(), before, "{damage}");
    }
}
