//! The meaning of a statement's names on each shard.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::queries::error;

/// Otherwise the other shard would run it twice.
#[test]
fn what_a_shard_lacks_is_not_changed_on_another_one() {
    let cluster = Cluster::namespaces(2, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE ROLE deployer LOGIN; CREATE TABLE shard_a.runs (n serial); GRANT ALL ON shard_a.runs TO deployer;
             GRANT ALL ON SCHEMA shard_a, shard_b TO deployer; GRANT USAGE ON SEQUENCE shard_a.runs_n_seq TO deployer;
             ALTER ROLE deployer SET search_path = shard_a; CREATE ROLE dba LOGIN;
             SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'deployer')",
        )
        .unwrap();
    let mut dba = cluster.master.connect(DATABASE, "dba").unwrap();
    assert_eq!(error(&mut dba, "CALL shard_execute('INSERT INTO runs DEFAULT VALUES')").0, "42P01");
    let rows = dba.query("SELECT state FROM shard_executions()", &[]).unwrap();
    let states: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(states, ["done", "failed"]);
    let runs: i64 = master.query_one("SELECT count(*) FROM shard_a.runs", &[]).unwrap().get(0);
    assert_eq!(runs, 1);
}
