//! What remains of dropped lookup indexes, and what they refuse.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser};
use shardmaster_tests::lookups::{ADD, add, insert, stage, texts, wait_equal, wait_filled};
use shardmaster_tests::queries::error;
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

fn leftovers(cluster: &Cluster, server: usize) -> i64 {
    let query = "SELECT count(*) FROM (SELECT FROM pg_trigger WHERE tgname LIKE '%shardmaster%'
                       UNION ALL SELECT FROM pg_namespace WHERE nspname = 'shardmaster_agent') l";
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

#[test]
fn what_is_dropped_leaves_nothing_on_the_shards() {
    let mut cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(&cluster, 0, &insert(1, 10, "a"));
    wait_equal(&cluster, &mut master);
    assert_eq!(error(&mut master, "SELECT shard_table_drop('users')").0, "55006");
    assert_eq!(error(&mut master, "SELECT shard_keyspace_drop('emails')").0, "55006");
    // One shard is away. What is left there is reported, and removed when the shard is back.
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    master
        .batch_execute("SELECT shard_table_drop('users', 'emails'); SELECT shard_keyspace_drop('emails')")
        .unwrap();
    wait::until("nothing is left", LIMIT, || Ok((leftovers(&cluster, 0) == 0).then_some(()))).unwrap();
    let said = "SELECT count(*) > 0 FROM shard_status() WHERE item LIKE 'former lookup index \"emails\" on shard \"shard_b\"' AND NOT ok";
    wait::until_true(&mut master, "it is said", LIMIT, said).unwrap();
    // A new lookup index is distinguished from the old one, so monitoring sees no name twice.
    let begun = "INSERT INTO shardmaster.lookup_shard (lookup, shard_key) VALUES ('emails', 'shard_b')";
    master.batch_execute(&format!("BEGIN; {ADD}; {begun}")).unwrap();
    let names = "SELECT count(*) FILTER (WHERE item LIKE '%lookup index \"emails\" on shard \"shard_b\"'), count(*) = count(DISTINCT item) FROM shard_status()";
    let named = master.query_one(names, &[]).unwrap();
    assert_eq!((named.get::<_, i64>(0), named.get::<_, bool>(1)), (2, true));
    master.batch_execute("ROLLBACK").unwrap();
    cluster.servers[1].run().unwrap();
    wait::until("nothing is left", LIMIT, || Ok((leftovers(&cluster, 1) == 0).then_some(()))).unwrap();
    wait::until_true(
        &mut master,
        "nobody works",
        LIMIT,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'shardmaster lookup'",
    )
    .unwrap();

    // A cleanup removes what a master has forgotten.
    master.batch_execute(ADD).unwrap();
    wait_filled(&mut master);
    master
        .batch_execute("SELECT shard_table_drop('users', 'emails'); DELETE FROM shardmaster.lookup_removal")
        .unwrap();
    let removed: String =
        master.query_one("SELECT object || ' ' || action FROM shard_cleanup('shard_a')", &[]).unwrap().get(0);
    assert_eq!(removed, "lookup index \"emails\" removed");
    assert_eq!(leftovers(&cluster, 0), 0);
}

#[test]
fn what_a_look_up_cannot_is_refused_by_name() {
    let cluster = stage(&[]);
    let mut master = cluster.superuser().unwrap();
    for (call, state) in [
        ("SELECT shard_keyspace_add('emails', 'lookup')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', of => 'nothing')", "42704"),
        ("SELECT shard_keyspace_add('emails', 'lookup', buckets => 4, of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', shards => '{shard_a}', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'directory', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', key_type => 'json', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('default', 'lookup', of => 'default')", "42710"),
        ("SELECT shard_lookup('x', 'default')", "22023"),
        ("SELECT shard_lookup('x', 'nothing')", "42704"),
        ("SELECT shard_lookup_claim('x', 'a', 'default')", "22023"),
        ("SELECT * FROM shard_lookup_conflicts('default')", "22023"),
    ] {
        let (found, message) = error(&mut master, call);
        assert_eq!(found, state, "{call}: {message}");
    }
    master.batch_execute("SELECT shard_keyspace_add('emails', 'lookup', of => 'default')").unwrap();
    for (call, state) in [
        ("SELECT shard_keyspace_add('emails', 'hash', buckets => 4)", "42710"),
        ("SELECT shard_keyspace_add('emails', 'lookup', of => 'default')", "42710"),
        ("SELECT shard_keyspace_add('others', 'lookup', of => 'emails')", "0A000"),
        ("SELECT shard_table_add('others', 'email', 'emails')", "42704"),
        ("SELECT shard_table_add('users', 'tenant', 'emails')", "22023"),
        ("SELECT shard_table_add('users', 'email', 'emails', key_type => 'bigint')", "22023"),
        ("SELECT shard_table_drop('users', 'emails')", "42704"),
        ("SELECT shard_lookup_claim('x', 'a', 'emails')", "55000"),
        ("SELECT shard_route('x', 'write', 'emails')", "55000"),
        ("SELECT shard_assign('x', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_many('{x}', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_bucket(1, 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_range('a', 'b', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_unassign('x', 'emails')", "0A000"),
        ("SELECT shard_join_ranges('emails')", "0A000"),
        ("SELECT shard_range_midpoint('emails', NULL, NULL)", "0A000"),
        ("SELECT * FROM shard_route_range('a', 'b', 'read', 'emails')", "0A000"),
        ("SELECT * FROM shard_entries('emails')", "0A000"),
        ("SELECT shard_routing_version('emails')", "0A000"),
        ("SELECT * FROM shard_routing_history('emails')", "0A000"),
        ("SELECT shard_route_at('x', 1, 'emails')", "0A000"),
        ("SELECT shard_routing_rollback(1, 'emails')", "0A000"),
        ("SELECT shard_place_tenant('x', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan('shard_a', 'shard_b', '{x}', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan_range('shard_a', 'shard_b', 'a', 'b', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan_all('shard_a', 'shard_b', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_query_json('SELECT 1', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_misplaced('emails')", "0A000"),
        ("SELECT * FROM shard_unassigned('emails')", "0A000"),
        ("CALL shard_misplaced_move('shard_a', '{x}', 'emails')", "0A000"),
        ("CALL shard_misplaced_delete('shard_a', '{x}', 'emails')", "0A000"),
        ("CALL shard_execute('SELECT 1', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_import('emails', 'imported')", "0A000"),
        ("SELECT shard_gateway_config('nginx', 'emails')", "0A000"),
    ] {
        let (found, message) = error(&mut master, call);
        assert_eq!(found, state, "{call}: {message}");
    }
    master.batch_execute("SELECT shard_table_add('users', 'email', 'emails')").unwrap();
    assert_eq!(
        texts(&mut master, "SELECT table_name || ' ' || shard_by FROM shard_tables('emails')").len(),
        1
    );
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["a"]).unwrap();
    let map = format!("SELECT shard_split_map({}, 'users', 'email', 'lower(email)')", split.id);
    assert_eq!(error(&mut master, &map).0, "0A000");
}
