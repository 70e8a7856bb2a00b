//! Logical replication of a shard's tables that starts while a split runs.

use shardmaster_tests::fixture::{LIMIT, by_superuser, cluster, plan, source, to_pending};
use shardmaster_tests::wait;

/// If a publication gets a reader while a split runs, the split tells its operator and continues. So it does
/// for a subscription of the source.
#[test]
fn a_reader_or_a_writer_by_replication_that_comes_meanwhile_is_told() {
    let cluster = cluster(&["wal_level = logical"]);
    let split = plan(&cluster);
    to_pending(&split);
    let is_told = |what: &str| {
        wait::until(what, LIMIT, || {
            let waits = split.metric::<Option<String>>("waiting_for")?;
            Ok(waits.is_some_and(|text| text.contains(what)).then_some(()))
        })
        .unwrap();
        split.wait_for_event(what, LIMIT).unwrap();
        let diagnosis = "SELECT string_agg(d::text, '; ') FROM shard_split_diagnose($1) d";
        let found: String = split.superuser().unwrap().query_one(diagnosis, &[&split.id]).unwrap().get(0);
        assert!(found.contains(what), "{found}");
    };
    let mut publisher = source(&cluster);
    publisher.batch_execute("CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
    publisher.batch_execute("SELECT pg_create_logical_replication_slot('reads', 'pgoutput')").unwrap();
    is_told("publication everything is FOR ALL TABLES; read by slot reads");
    source(&cluster)
        .batch_execute("DROP PUBLICATION everything; SELECT pg_drop_replication_slot('reads')")
        .unwrap();
    split.wait_settled(LIMIT).unwrap();
    // A subscription of the target stops the split, because it would write between the split's rows.
    by_superuser(
        &cluster,
        0,
        "SET allow_system_table_mods = on;
             CREATE SUBSCRIPTION writes CONNECTION 'dbname=none' PUBLICATION none WITH (connect = false, slot_name = NONE);
             INSERT INTO pg_subscription_rel SELECT oid, 'items'::regclass, 'r', NULL FROM pg_subscription",
    );
    is_told("a subscription writes to public.items");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
}
