//! Splits between servers of different major versions, there and back under load.
//! The master is of the version that the extension is built for.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::scene::splits_under_load;
use shardmaster_tests::workload::Sharding;

/// All tenants of `sharding` start on a server of the master's version. The plans name
/// shard_a, which is that one, and shard_b, which is of version `major`.
fn there_and_back(major: u32, sharding: Sharding, there: &str, back: &str) {
    let mut cluster = Cluster::servers(1, &[]).unwrap();
    cluster.add_major(major).unwrap();
    let version = "SELECT current_setting('server_version_num')::int / 10000";
    let found: i32 =
        cluster.servers[1].superuser("postgres").unwrap().query_one(version, &[]).unwrap().get(0);
    assert_eq!(found.cast_unsigned(), major);
    splits_under_load(&cluster, sharding, &[there, back]);
}

fn tenants(major: u32) {
    there_and_back(
        major,
        Sharding::Directory(vec![0; 8]),
        "SELECT shard_split_plan('shard_a', 'shard_b', '{tenant-00,tenant-02,tenant-04,tenant-05}')",
        "SELECT shard_split_plan('shard_b', 'shard_a', '{tenant-02,tenant-05}')",
    );
}

/// The agent brings the hash in PL/pgSQL; it has to be the same on every version.
fn buckets(major: u32) {
    there_and_back(
        major,
        Sharding::Hash { buckets: 16, shards: 1 },
        "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
           FROM generate_series(0, 15, 2) b",
        "SELECT shard_split_plan_all('shard_b', 'shard_a', keyspace => 'tenants')",
    );
}

#[test]
fn tenants_to_13_and_back() {
    tenants(13);
}

#[test]
fn tenants_to_14_and_back() {
    tenants(14);
}

#[test]
fn tenants_to_16_and_back() {
    tenants(16);
}

#[test]
fn tenants_to_17_and_back() {
    tenants(17);
}

#[test]
fn tenants_to_18_and_back() {
    tenants(18);
}

#[test]
fn buckets_to_the_oldest_and_back() {
    buckets(13);
}

#[test]
fn buckets_to_the_newest_and_back() {
    buckets(18);
}
