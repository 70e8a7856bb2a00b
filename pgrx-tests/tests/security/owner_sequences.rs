//! An owner of a table who replaces its sequence by something else during a cutover.

use shardmaster_tests::attacker::{by_attacker, is_mover, own_the_table, session};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, by_superusers, cluster, plan, to_pending};

/// After the fence the sequences are read by the names that they had before it.
#[test]
fn a_view_in_the_place_of_a_sequence_is_not_read() {
    for shard in ["shard_a", "shard_b"].into_iter().take(at_most(1)) {
        let cluster = cluster(&["shardmaster.cutover_timeout = '60s'"]);
        own_the_table(&cluster);
        by_superusers(&cluster, "CREATE SEQUENCE counts; ALTER SEQUENCE counts OWNER TO mallory");
        by_attacker(&cluster, "ALTER TABLE items ALTER code SET DEFAULT nextval('counts')");
        let split = plan(&cluster);
        to_pending(&split);
        cluster.hold("cutover_fenced").unwrap();
        split.call("cutover").unwrap();
        split.wait_held("cutover_fenced", LIMIT).unwrap();
        session(&cluster, shard)
            .batch_execute(
                "ALTER SEQUENCE counts RENAME TO kept;
                 CREATE VIEW counts AS SELECT (CASE WHEN evil('x') THEN 1 END)::bigint AS last_value",
            )
            .unwrap();
        cluster.fault("").unwrap();
        // When requested again, the cutover finds the sequence by its present name.
        if split.wait("completed", LIMIT).is_err() {
            assert!(!is_mover(&cluster), "{shard}");
            split.call("cutover").unwrap();
            split.wait("completed", LIMIT).unwrap();
        }
        assert!(!is_mover(&cluster), "{shard}");
        split.finish(LIMIT).unwrap();
    }
}
