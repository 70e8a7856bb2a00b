//! Splits of every scope under load: buckets, ranges, everything on a shard.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::split::Split;
use shardmaster_tests::workload::{Mix, Options, Sharding, Workload};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn options(sharding: Sharding) -> Options {
    Options { rows: 40_000, mix: Mix { special: 25, retenant: true }, sharding, ..Options::tenants(8) }
}

/// Load while each of the plans is carried out; what a plan's query is given is what the
/// earlier ones have made of the cluster.
fn under_load(cluster: &Cluster, sharding: Sharding, plans: &[&str]) {
    let mut workload = Workload::prepare(cluster, options(sharding)).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    for plan in plans {
        let split = Split::plan_by(cluster, plan).unwrap();
        split.run(|_| ()).unwrap();
        workload.wait_for(300, LIMIT).unwrap();
        split.finish(LIMIT).unwrap();
        workload.wait_for(300, LIMIT).unwrap();
    }
    workload.stop().unwrap();
    let verdict = workload.verdict(cluster).unwrap();
    assert!(verdict.is_clean(), "{verdict}");
}

/// Rows that a shard holds.
fn rows(cluster: &Cluster, shard: usize) -> i64 {
    let query = "SELECT count(*) FROM accounts";
    cluster.owner_of(&cluster.shards[shard]).unwrap().query_one(query, &[]).unwrap().get(0)
}

fn entries(cluster: &Cluster) -> Vec<(Option<String>, Option<String>, String)> {
    let query = "SELECT lower, upper, write_shard FROM shard_entries('tenants')";
    let rows = cluster.superuser().unwrap().query(query, &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[test]
fn buckets_move_and_some_come_back() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    // The tenants are in 6 of the buckets.
    let sharding = Sharding::Hash { buckets: 16, shards: 1 };
    under_load(
        &cluster,
        sharding,
        &[
            "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
               FROM generate_series(0, 15, 2) b",
            "SELECT shard_split_plan('shard_b', 'shard_a', array_agg(b::text), keyspace => 'tenants')
               FROM generate_series(0, 15, 4) b",
        ],
    );
    let query = "SELECT write_shard, count(*) FROM shard_entries('tenants') GROUP BY 1 ORDER BY 1";
    let found = cluster.superuser().unwrap().query(query, &[]).unwrap();
    let found: Vec<(String, i64)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(found, [("shard_a".to_owned(), 12), ("shard_b".to_owned(), 4)]);
}

#[test]
fn a_range_is_cut_out_and_a_part_of_it_comes_back() {
    let cluster = Cluster::namespaces(2, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Range(vec![]),
        &[
            "SELECT shard_split_plan_range('shard_a', 'shard_b', 'tenant-02', 'tenant-06', keyspace => 'tenants')",
            "SELECT shard_split_plan_range('shard_b', 'shard_a', 'tenant-03', 'tenant-05', keyspace => 'tenants')",
        ],
    );
    let bound = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let expected = [
        ("", "tenant-02", "shard_a"),
        ("tenant-02", "tenant-03", "shard_b"),
        ("tenant-03", "tenant-05", "shard_a"),
        ("tenant-05", "tenant-06", "shard_b"),
        ("tenant-06", "", "shard_a"),
    ];
    let expected: Vec<_> = expected.iter().map(|(l, u, s)| (bound(l), bound(u), (*s).to_owned())).collect();
    assert_eq!(entries(&cluster), expected);
}

#[test]
fn two_shards_become_one() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let merge = "SELECT shard_split_plan_all('shard_b', 'shard_a', keyspace => 'tenants')";
    under_load(&cluster, Sharding::Range(vec!["tenant-03", "tenant-05", "tenant-06"]), &[merge]);
    assert_eq!(rows(&cluster, 1), 0);
    cluster.superuser().unwrap().batch_execute("SELECT shard_join_ranges('tenants')").unwrap();
    assert_eq!(entries(&cluster), [(None, None, "shard_a".to_owned())]);
    let nothing = Split::plan_by(&cluster, merge).err().unwrap();
    assert_eq!(nothing.sqlstate(), Some("22023"), "{nothing}");
}

#[test]
fn a_whole_shard_moves_to_a_new_server() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Directory(vec![0; 8]),
        &["SELECT shard_split_plan_all('shard_a', 'shard_b', 'the old server goes')"],
    );
    assert_eq!(rows(&cluster, 0), 0);
}

#[test]
fn several_shards_one_after_the_other_into_one() {
    let cluster = Cluster::servers(3, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Hash { buckets: 8, shards: 2 },
        &[
            "SELECT shard_split_plan_all('shard_a', 'shard_c', keyspace => 'tenants')",
            "SELECT shard_split_plan_all('shard_b', 'shard_c', keyspace => 'tenants')",
        ],
    );
    assert_eq!((rows(&cluster, 0), rows(&cluster, 1)), (0, 0));
}
