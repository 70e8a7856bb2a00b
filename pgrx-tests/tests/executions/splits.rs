//! Statements on all shards, and splits whose shards are not in order.

use shardmaster_tests::fixture::{LIMIT, by_superuser};
use shardmaster_tests::queries::error;
use shardmaster_tests::split::Split;
use shardmaster_tests::two_phase::{dba, stage};
use shardmaster_tests::wait;

/// Nothing has moved yet, and the statement adds what the check has missed.
#[test]
fn what_a_check_has_found_is_mended_by_a_statement() {
    let cluster = stage(2);
    by_superuser(&cluster, 0, "ALTER TABLE items ADD note text");
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    split.call("start_dual_write").unwrap();
    let failed = || Ok((split.metric::<String>("activity")? == "failed").then_some(()));
    wait::until("the check to fail", LIMIT, failed)
        .unwrap_or_else(|why| panic!("{why}: {}", split.describe()));
    let line = "SELECT progress, waiting_for, next_call FROM shard_splits()";
    let line = cluster.superuser().unwrap().query_one(line, &[]).unwrap();
    assert_eq!(line.get::<_, &str>(0), "failed");
    let (why, next): (&str, &str) = (line.get(1), line.get(2));
    assert!(why.contains("note") && next.contains("shard_split_"), "{why} {next}");
    let add = |shard: &str| {
        format!(
            "CALL shard_execute('ALTER TABLE items ADD IF NOT EXISTS note text', shards => '{{{shard}}}')"
        )
    };
    dba(&cluster).batch_execute(&add("shard_b")).unwrap();
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    assert_eq!(error(&mut dba(&cluster), &add("shard_b")).0, "55006");
}
