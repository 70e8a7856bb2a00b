//! `shard_top()` finds keys to move, from what a shard has without any objects of ours.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner, by_superuser};
use shardmaster_tests::queries::{analyst, error, nobody_works_on, stage};
use shardmaster_tests::server::Stop;
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// Opens a session whose login may read.
fn asker(cluster: &Cluster) -> Client {
    cluster.superuser().unwrap().batch_execute("SELECT shard_grant('analyst', 'operator')").unwrap();
    analyst(cluster)
}

fn keys(client: &mut Client, call: &str) -> Vec<String> {
    let rows =
        client.query(&format!("SELECT key FROM shard_top({call}) WHERE key IS NOT NULL"), &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// One key has most rows, one has the widest rows, and one is written all the time.
#[test]
fn each_of_the_big_and_the_hot_is_found_first() {
    let cluster = stage(&[]);
    by_owner(
        &cluster,
        0,
        "INSERT INTO items SELECT 'big', i, 'x', i FROM generate_series(1, 40000) i;
         INSERT INTO items SELECT 'wide', i, (SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 50) n), i FROM generate_series(1, 3000) i;
         INSERT INTO items SELECT 'hot', i, 'x', i FROM generate_series(1, 50) i",
    );
    let mut owner = cluster.servers[0].superuser(DATABASE).unwrap();
    for turn in 0..1500 {
        let update = "UPDATE items SET val = $1 WHERE tenant = 'hot' AND id = $2";
        owner.execute(update, &[&turn.to_string(), &(turn % 50 + 1)]).unwrap();
    }
    by_owner(&cluster, 1, "INSERT INTO items SELECT 'there', i, 'x', i FROM generate_series(1, 1000) i");
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT shard_assign_many('{big,wide,hot}', 'shard_a')")
        .unwrap();
    let mut client = asker(&cluster);
    let counted = "SELECT n_tup_upd >= 1500 FROM pg_stat_user_tables WHERE relname = 'items'";
    wait::until_true(&mut owner, "the statistics", LIMIT, counted).unwrap();
    assert_eq!(keys(&mut client, "")[..4], ["big", "wide", "there", "moves"]);
    assert_eq!(keys(&mut client, "by => 'bytes', most => 2"), ["wide", "big"]);
    assert_eq!(keys(&mut client, "by => 'writes', most => 1"), ["hot"]);
    assert_eq!(keys(&mut client, "'default', 'shard_b'"), ["there"]);
    // All of it was read.
    let row = client
        .query_one("SELECT rows, rows_error, bytes > 40000 * 30, routed_to, shard, share FROM shard_top() WHERE key = 'big'", &[])
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (40_000i64, 0i64, true));
    assert_eq!((row.get(3), row.get(4)), ("shard_a", "shard_a"));
    let share: f64 = row.get(5);
    assert!((share - 4_000_000.0 / 43_650.0).abs() < 0.1, "{share}");
    let nowhere: Option<String> =
        client.query_one("SELECT routed_to FROM shard_top() WHERE key = 'there'", &[]).unwrap().get(0);
    assert_eq!(nowhere, None);
    nobody_works_on(&cluster);
}

/// The table is too big to be read. Nearly all numbers are within their errors, and none is far off. The rows
/// of one tenant are together, and those of another are everywhere.
#[test]
#[ignore = "make test-all: a table too big to be read; make test has each_of_the_big_and_the_hot_is_found_first"]
fn estimates_are_within_their_errors() {
    let cluster = stage(&[]);
    by_owner(
        &cluster,
        0,
        "INSERT INTO items SELECT CASE WHEN i % 3 = 0 THEN 'scattered' WHEN i > 60000 THEN 'last' ELSE 'part ' || i / 10000 END,
                i, repeat(md5(i::text), 40), i FROM generate_series(1, 80000) i;
         ALTER TABLE items ALTER val SET STORAGE PLAIN; ANALYZE items",
    );
    by_owner(&cluster, 0, "UPDATE items SET val = val || '' WHERE id % 7 = 0");
    let mut client = asker(&cluster);
    let began = Instant::now();
    let found =
        client.query("SELECT key, rows, rows_error FROM shard_top('default', 'shard_a')", &[]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    let mut shard = cluster.servers[0].superuser(DATABASE).unwrap();
    let mut outside = 0;
    for row in &found {
        let (key, rows, error): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let really: i64 =
            shard.query_one("SELECT count(*) FROM items WHERE tenant = $1", &[&key]).unwrap().get(0);
        let off = (rows - really).abs();
        assert!(error > 0 && off <= 2 * error, "{key}: {rows} ± {error}, and there are {really}");
        if really > 1000 {
            assert!(error < really / 2, "{key}: {rows} ± {error}");
        }
        outside += i32::from(off > error);
    }
    assert!(found.len() >= 9 && outside <= 1, "{outside} of {}", found.len());
}

/// Different texts of a value are one key, whatever its type, in each kind of keyspace.
#[test]
fn keys_of_every_type_are_told_in_their_own_form() {
    let cluster = stage(&[]);
    let tables = [
        ("smallint", "'7'", "7"),
        ("integer", "'-7'", "-7"),
        ("bigint", "'9000000000'", "9000000000"),
        ("numeric", "'1.50'", "1.5"),
        ("text", "'a ''b'''", "a 'b'"),
        ("varchar(9)", "'ä'", "ä"),
        ("char(9)", "'c'", "c"),
        ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ];
    let mut master = cluster.superuser().unwrap();
    let mut client = asker(&cluster);
    for (number, (of, value, key)) in tables.iter().enumerate() {
        let strategy = ["'directory'", "'hash', 8", "'range'"][number % 3];
        let base = of.split('(').next().unwrap();
        by_owner(
            &cluster,
            0,
            &format!(
                "CREATE TABLE \"t {number}\" (\"the \"\"key\" {of}, more text) ;
                 INSERT INTO \"t {number}\" VALUES ({value}), ({value}), (NULL); GRANT SELECT ON \"t {number}\" TO reader"
            ),
        );
        master
            .batch_execute(&format!(
                "SELECT shard_keyspace_add('{number}', {strategy}, key_type => '{base}');
                 SELECT shard_table_add('\"t {number}\"', '\"the \"\"key\"', '{number}')"
            ))
            .unwrap();
        let row = client
            .query_one(&format!("SELECT key, rows FROM shard_top('{number}', 'shard_a')"), &[])
            .unwrap_or_else(|error| panic!("{of}: {error:?}"));
        assert_eq!((row.get::<_, &str>(0), row.get::<_, i64>(1)), (*key, 2), "{of}");
    }
    // These are two texts of one number.
    by_owner(&cluster, 0, "INSERT INTO \"t 3\" VALUES ('1.5'), ('1.500')");
    let rows = client.query("SELECT key, rows FROM shard_top('3')", &[]).unwrap();
    assert_eq!((rows.len(), rows[0].get::<_, &str>(0), rows[0].get::<_, i64>(1)), (1, "1.5", 4));
    // Partitions are counted together, and so are their writes.
    by_owner(
        &cluster,
        0,
        "CREATE TABLE parts (tenant text, id int) PARTITION BY HASH (id);
         CREATE TABLE part_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO parts SELECT 'p', i FROM generate_series(1, 500) i; GRANT SELECT ON parts TO reader",
    );
    master
        .batch_execute(
            "SELECT shard_keyspace_add('parts', 'directory'), shard_table_add('parts', 'tenant', 'parts')",
        )
        .unwrap();
    let all = "SELECT rows = 500 AND writes = 500 AND share = 100 FROM shard_top('parts', 'shard_a')";
    wait::until("the statistics", LIMIT, || Ok(client.query_one(all, &[])?.get::<_, bool>(0).then_some(())))
        .unwrap();
}

#[test]
fn a_shard_that_says_nothing_is_named() {
    let mut cluster = stage(&[]);
    let mut client = asker(&cluster);
    cluster.servers[1].hang().unwrap();
    let began = Instant::now();
    let rows = client.query("SELECT key, shard, problem FROM shard_top(timeout => '2 s')", &[]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    let told = (rows[0].get::<_, Option<&str>>(0), rows[0].get::<_, &str>(1));
    assert_eq!(told, (None, "shard_b"));
    assert!(rows[0].get::<_, &str>(2).contains("shard_b"), "{rows:?}");
    assert_eq!(rows.len(), 3);
    let (_, message) = error(&mut client, "SELECT shard_top('default', 'shard_b', timeout => '1 s')");
    assert!(message.contains("shard_b"), "{message}");
    cluster.servers[1].wake().unwrap();
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    let (_, message) = error(&mut client, "SELECT shard_top('default', 'shard_b')");
    assert!(message.contains("shard_b"), "{message}");
}

/// Shards are queried with the caller's login, with its rights and no more.
#[test]
fn nobody_gains_a_right() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    assert_eq!(error(&mut client, "SELECT shard_top()").0, "42501");
    let mut client = asker(&cluster);
    by_owner(&cluster, 1, "REVOKE SELECT ON items FROM reader");
    let rows = client.query("SELECT problem FROM shard_top() WHERE problem IS NOT NULL", &[]).unwrap();
    assert!(rows.len() == 1 && rows[0].get::<_, &str>(0).contains("permission denied"), "{rows:?}");
    by_owner(&cluster, 0, "ALTER TABLE items ENABLE ROW LEVEL SECURITY");
    by_superuser(&cluster, 0, "CREATE POLICY part ON items TO reader USING (tenant = 'moves')");
    assert_eq!(error(&mut client, "SELECT shard_top('default', 'shard_a')").0, "42501");
    for (call, state) in [
        ("most => 0", "22023"),
        ("most => NULL", "22004"),
        ("by => 'heat'", "22023"),
        ("timeout => '0 s'", "22023"),
        ("'nothing'", "42704"),
        ("shard => 'nothing'", "42704"),
    ] {
        assert_eq!(error(&mut client, &format!("SELECT shard_top({call})")).0, state, "{call}");
    }
}
