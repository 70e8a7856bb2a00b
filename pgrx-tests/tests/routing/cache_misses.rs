//! Keys that a session has not asked for yet, on shards that it knows. They are found by the index of the
//! entries alone, and the answer is the same as that of a statement.

use postgres::Client;
use postgres::error::SqlState;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::server::Server;
use shardmaster_tests::wait;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const KEYS: i64 = 100;

/// Makes keys 0 to 99, even ones on shard_a and odd ones on shard_b, in keyspaces of texts, of numbers, and
/// of hashes.
fn cluster() -> Cluster {
    let cluster = Cluster::namespaces(2, &["fsync = off", "shardmaster.route_wait_timeout = 10"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!(
            "SELECT shard_keyspace_add('n', 'directory', key_type => 'bigint');
             SELECT shard_keyspace_add('h', 'hash', 64, 'bigint');
             SELECT shard_assign_many(array_agg(k::text), CASE k % 2 WHEN 0 THEN 'shard_a' ELSE 'shard_b' END, keyspace)
               FROM generate_series(0, {KEYS} - 1) k, unnest('{{default,n}}'::text[]) keyspace GROUP BY k % 2, keyspace"
        ))
        .unwrap();
    cluster
}

/// Opens a client's session that knows both shards of each keyspace, for both intents.
fn session(cluster: &Cluster) -> Client {
    knowing(cluster.client().unwrap())
}

fn knowing(mut client: Client) -> Client {
    let first = "SELECT shard_of(k::text, i, 'default'), shard_of(k::text, i, 'n'), shard_of(k::text, i, 'h')
                   FROM generate_series(0, 9) k, unnest('{read,write}'::text[]) i";
    client.query(first, &[]).unwrap();
    client
}

/// Returns how often the tables were read that a statement needs besides the entries, and the index of the entries.
fn reads(client: &mut Client) -> (i64, i64) {
    let query = "SELECT (SELECT sum(seq_scan + coalesce(idx_scan, 0))::bigint FROM pg_stat_xact_all_tables
                          WHERE schemaname = 'shardmaster' AND relname IN ('keyspace', 'shard', 'routing_version')),
                        (SELECT pg_stat_get_xact_numscans(oid) FROM pg_class WHERE relname = 'routing_entry_current_key')";
    let row = client.query_one(query, &[]).unwrap();
    (row.get(0), row.get(1))
}

fn wrong(client: &mut Client, keyspace: &str) -> i64 {
    let query = format!(
        "SELECT count(*) FROM generate_series(0, {KEYS} - 1) k, unnest('{{read,write}}'::text[]) i
          WHERE shard_of(k::text, i, $1) <> CASE k % 2 WHEN 0 THEN 'shard_a' ELSE 'shard_b' END"
    );
    client.query_one(&query, &[&keyspace]).unwrap().get(0)
}

#[test]
fn one_look_at_an_index_is_all_it_takes() {
    let cluster = cluster();
    for cache in ["200000", "7"] {
        let mut client = session(&cluster);
        client.batch_execute(&format!("SET shardmaster.route_cache_size = {cache}; BEGIN")).unwrap();
        let before = reads(&mut client);
        for keyspace in ["default", "n"] {
            assert_eq!(wrong(&mut client, keyspace), 0, "{keyspace}");
        }
        client.query("SELECT shard_of(k::text, 'write', 'h') FROM generate_series(0, 99) k", &[]).unwrap();
        let after = reads(&mut client);
        assert_eq!(after.0, before.0, "cache of {cache}");
        assert!(after.1 >= before.1 + 2 * 2 * (KEYS - 10), "{before:?}, {after:?}");
        client.batch_execute("COMMIT").unwrap();
    }
    // Without a cache, each key is looked up by a statement.
    let mut client = session(&cluster);
    client.batch_execute("SET shardmaster.route_cache_size = 0; BEGIN").unwrap();
    let before = reads(&mut client);
    assert_eq!(wrong(&mut client, "n"), 0);
    assert!(reads(&mut client).0 > before.0 + KEYS);
}

#[test]
fn what_is_no_key_is_refused_as_a_statement_refuses_it() {
    let cluster = cluster();
    let mut client = session(&cluster);
    let of = |client: &mut Client, key: &str, keyspace: &str| {
        client
            .query_one("SELECT shard_of($1, 'write', $2)", &[&key, &keyspace])
            .map(|row| row.get::<_, String>(0))
            .map_err(|error| error.code().cloned())
    };
    assert_eq!(of(&mut client, " +0051", "n"), Ok("shard_b".into()));
    assert_eq!(of(&mut client, " +0051", "default"), Err(Some(SqlState::UNDEFINED_OBJECT)));
    assert_eq!(of(&mut client, "200", "n"), Err(Some(SqlState::UNDEFINED_OBJECT)));
    assert_eq!(of(&mut client, "7x", "n"), Err(Some(SqlState::INVALID_TEXT_REPRESENTATION)));
    assert_eq!(of(&mut client, "-9223372036854775809", "n"), Err(Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE)));
    assert_eq!(of(&mut client, &"k".repeat(1 << 20), "default"), Err(Some(SqlState::UNDEFINED_OBJECT)));
    assert_eq!(of(&mut client, "50", "none"), Err(Some(SqlState::UNDEFINED_OBJECT)));
    assert_eq!(of(&mut client, "50", "n"), Ok("shard_a".into()));
}

/// The time between the commit of a change and the invalidation that sessions get, which never comes here. A
/// changed entry is returned with its own version, and an entry that a split holds is held.
#[test]
fn an_entry_that_has_changed_is_told_with_its_version() {
    let cluster = cluster();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("ALTER TABLE shardmaster.routing_entry DISABLE TRIGGER routing_changed").unwrap();
    let mut client = session(&cluster);
    let told = |client: &mut Client, key: &str| -> (String, i64) {
        let row =
            client.query_one("SELECT shard_key, routing_version FROM shard_route($1)", &[&key]).unwrap();
        (row.get(0), row.get(1))
    };
    let before = told(&mut client, "20").1;
    master
        .batch_execute(
            "SELECT shard_assign('22', 'shard_b', force => true);
             UPDATE shardmaster.routing_entry SET write_shard = 'shard_b', status = 'disabled' WHERE key = '24' AND valid_to IS NULL",
        )
        .unwrap();
    assert_eq!(told(&mut client, "26"), ("shard_a".into(), before));
    assert_eq!(told(&mut client, "22"), ("shard_b".into(), before + 1));
    assert_eq!(told(&mut client, "20"), ("shard_a".into(), before));
    let held = client.query_one("SELECT shard_of('24')", &[]).unwrap_err();
    assert_eq!(held.code().map(SqlState::code), Some("SM002"));
    assert_eq!(client.query_one("SELECT shard_of('24', 'read')", &[]).unwrap().get::<_, &str>(0), "shard_a");
}

#[test]
fn transactions_see_what_they_may() {
    let cluster = cluster();
    let mut master = cluster.superuser().unwrap();
    let of = |client: &mut Client, key: &str| -> String {
        client.query_one("SELECT shard_of($1)", &[&key]).unwrap().get(0)
    };
    let assign = |client: &mut Client, key: &str, shard: &str| {
        client.query_one("SELECT shard_assign($1, $2, force => true)", &[&key, &shard]).unwrap();
    };
    let mut client = session(&cluster);
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    assign(&mut master, "30", "shard_b");
    assert_eq!((of(&mut client, "30"), of(&mut client, "32")), ("shard_a".into(), "shard_a".into()));
    client.batch_execute("COMMIT").unwrap();
    assert_eq!((of(&mut client, "32"), of(&mut client, "30")), ("shard_a".into(), "shard_b".into()));

    let mut client = knowing(cluster.superuser().unwrap());
    client.batch_execute("BEGIN; SAVEPOINT s").unwrap();
    assign(&mut client, "34", "shard_b");
    assign(&mut client, "new", "shard_b");
    assert_eq!((of(&mut client, "34"), of(&mut client, "new")), ("shard_b".into(), "shard_b".into()));
    client.batch_execute("ROLLBACK TO s").unwrap();
    assert_eq!((of(&mut client, "36"), of(&mut client, "34")), ("shard_a".into(), "shard_a".into()));
    assert!(client.query_one("SELECT shard_of('new')", &[]).is_err());
    client.batch_execute("ROLLBACK").unwrap();
    // The change is in the same statement, and not committed by another session.
    let mut client = knowing(cluster.superuser().unwrap());
    let query = "SELECT shard_assign('38', 'shard_b', force => true) > 0, shard_of('38')";
    assert_eq!(client.query_one(query, &[]).unwrap().get::<_, &str>(1), "shard_b");
    for (cache, key) in [("0", "44"), ("200000", "46")] {
        let mut client = knowing(cluster.superuser().unwrap());
        client.batch_execute(&format!("SET shardmaster.route_cache_size = {cache}")).unwrap();
        let query = "UPDATE shardmaster.routing_entry SET write_shard = 'shard_b', read_shard = 'shard_b'
                      WHERE key = $1 AND keyspace = 'default' RETURNING shard_of(key)";
        assert_eq!(client.query_one(query, &[&key]).unwrap().get::<_, &str>(0), "shard_b", "{cache}");
    }
    master.batch_execute("BEGIN").unwrap();
    assign(&mut master, "40", "shard_b");
    assert_eq!((of(&mut client, "42"), of(&mut client, "40")), ("shard_a".into(), "shard_a".into()));
    master.batch_execute("COMMIT").unwrap();
    assert_eq!(of(&mut client, "40"), "shard_b");
}

/// The plan has a part that parallel workers run, in a transaction that has written.
#[test]
fn keys_of_a_parallel_plan_are_found() {
    let cluster = cluster();
    let mut client = knowing(cluster.superuser().unwrap());
    client
        .batch_execute(&format!(
            "CREATE TABLE key AS SELECT k::text AS key FROM generate_series(0, {KEYS} - 1) k; ANALYZE key;
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             ALTER TABLE key SET (parallel_workers = 2); BEGIN; CREATE TABLE written ()"
        ))
        .unwrap();
    let query = "SELECT key, shard_of(key, 'write', 'n') FROM key WHERE length(key) > 0";
    let plan = client.query(&format!("EXPLAIN {query}"), &[]).unwrap();
    assert!(plan.iter().any(|line| line.get::<_, &str>(0).contains("Gather")), "{plan:?}");
    for row in client.query(query, &[]).unwrap() {
        let is_even = row.get::<_, &str>(0).parse::<i64>().unwrap() % 2 == 0;
        assert_eq!(row.get::<_, &str>(1), if is_even { "shard_a" } else { "shard_b" });
    }
}

/// Rebuilding the index, with another number each time, causes no errors in other sessions.
#[test]
fn indexes_are_made_anew_meanwhile() {
    let cluster = cluster();
    let mut master = cluster.superuser().unwrap();
    let mut client = session(&cluster);
    client.batch_execute("SET shardmaster.route_cache_size = 1").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) || rounds < 10 {
                assert_eq!((wrong(&mut client, "default"), wrong(&mut client, "n")), (0, 0));
                rounds += 1;
            }
            rounds
        });
        for _ in 0..5 {
            master.batch_execute("REINDEX INDEX CONCURRENTLY shardmaster.routing_entry_current_key").unwrap();
            master.batch_execute("REINDEX TABLE shardmaster.routing_entry").unwrap();
            master.batch_execute("VACUUM FREEZE shardmaster.routing_entry").unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        asked.join().unwrap()
    });
    assert!(rounds >= 10);
}

#[test]
fn a_standby_finds_keys_by_its_index() {
    let cluster = cluster();
    let mut standby = Server::standby_of(&cluster.master, "standby").unwrap();
    standby.run().unwrap();
    let mut there = standby.superuser(DATABASE).unwrap();
    let mut master = cluster.superuser().unwrap();
    for round in 0..5 {
        let key = format!("{}", 50 + 2 * round);
        master.query_one("SELECT shard_assign($1, 'shard_b', 'n', true)", &[&key]).unwrap();
        let lsn: String = master.query_one("SELECT pg_current_wal_lsn()::text", &[]).unwrap().get(0);
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'");
        wait::until_true(&mut there, "the replay", LIMIT, &replayed).unwrap();
        let query =
            "SELECT array_agg(shard_of(k::text, 'write', 'n') ORDER BY k) FROM generate_series(0, 99) k";
        let [here, standby]: [Vec<String>; 2] =
            [&mut master, &mut there].map(|client| client.query_one(query, &[]).unwrap().get(0));
        assert_eq!(here, standby);
        assert_eq!(standby.iter().filter(|shard| *shard == "shard_b").count(), 51 + round);
    }
    there.batch_execute("BEGIN").unwrap();
    let before = reads(&mut there);
    there.query("SELECT shard_of(k::text, 'read', 'n') FROM generate_series(0, 99) k", &[]).unwrap();
    let after = reads(&mut there);
    assert!(after.0 <= before.0 + 30 && after.1 >= before.1 + KEYS, "{before:?}, {after:?}");
}
