//! The extension installs, its worker starts, and it reports no problem.

use shardmaster_tests::cluster::{self, Cluster};
use shardmaster_tests::server::Stop;

#[test]
fn extension_is_up() {
    let mut cluster = Cluster::servers(0, &[]).unwrap();
    cluster::wait_healthy(&mut cluster.superuser().unwrap()).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    cluster::wait_healthy(&mut cluster.superuser().unwrap()).unwrap();
}
