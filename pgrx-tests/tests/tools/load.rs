//! The workload itself, on one shard: its records match the rows, and hidden damage is found.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::workload::{Mix, Options, Report, Workload};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

fn options() -> Options {
    Options { rows: 4_000, mix: Mix { special: 20, retenant: true }, ..Options::tenants(6) }
}

/// Lets writers work for a while, then executes `spoil` on the first shard, and returns the report.
fn report_after(cluster: &Cluster, writes: u64, spoil: &str) -> Report {
    let mut workload = Workload::prepare(cluster, options()).unwrap();
    workload.start();
    workload.wait_for(writes, LIMIT).unwrap();
    workload.stop().unwrap();
    cluster.owner_of(&cluster.shards[0]).unwrap().batch_execute(spoil).unwrap();
    workload.report(cluster).unwrap()
}

#[test]
fn an_undisturbed_load_is_clean() {
    for cluster in [Cluster::servers(1, &[]).unwrap(), Cluster::namespaces(1, &[]).unwrap()] {
        let report = report_after(&cluster, 2_000, "SELECT 1");
        assert!(report.is_clean(), "{report}");
        assert!(report.acknowledged >= 2_000 && report.rows > 3_000, "{report}");
    }
}

#[test]
fn every_spoilt_row_is_found() {
    let cluster = Cluster::servers(1, &[]).unwrap();
    let spoil = "UPDATE orders SET revision = revision - 1 WHERE ref IN (SELECT ref FROM orders LIMIT 3);
         DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY ref DESC LIMIT 2);
         INSERT INTO orders (tenant_id, ref, revision, code, amount, details)
             VALUES ('tenant-01', -5, 1, 'x', 1, '{}')";
    let report = report_after(&cluster, 500, spoil);
    assert_eq!((report.lost, report.doubled, report.misplaced), (5, 0, 1), "{report}");
}
