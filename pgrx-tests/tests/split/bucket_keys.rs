//! Rows of buckets on a source that hashes slowly are found by their keys or by the predicate. Both find the
//! rows that shard_for() gives, whatever the type of the keys.

use postgres::Client;
use shardmaster_client::shard_for;
use shardmaster_tests::cluster::{Cluster, MOVER, OWNER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::LIMIT;
use shardmaster_tests::split::Split;
use shardmaster_tests::zoo::driver::{self, ShardDatabase};
use std::num::NonZeroU32;

/// Of 64 buckets, these move.
const PLAN: &str = "SELECT shard_split_plan($source, 'shard_b', array_agg(b::text), keyspace => $keyspace) FROM generate_series(0, 20) b";
const TEXT: &str = "CASE g % 17 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'NULL' WHEN 3 THEN E'\\t\\n\\\\' WHEN 4 THEN E'\\\\N' WHEN 5 THEN '{a,\"b}'
                         WHEN 6 THEN 'é' WHEN 7 THEN 'a ' WHEN 8 THEN 'a' WHEN 9 THEN E'o''clock' ELSE 'tenant-' || g % 300 END";
const LONG: &str = "CASE WHEN g % 2 = 0 THEN repeat('tenant', 1000) || g ELSE 'T-ü𝄞' || g END";

/// A table with a key of a type, and its number of rows.
struct Keys {
    table: &'static str,
    key: &'static str,
    value: &'static str,
    rows: i32,
    /// Whether rows are found by their keys.
    by_keys: bool,
}

const fn keys(table: &'static str, key: &'static str, value: &'static str, by_keys: bool) -> Keys {
    Keys { table, key, value, rows: 6000, by_keys }
}

const NUMBERS: &[Keys] = &[
    keys("small", "smallint", "nullif(g % 60000 - 30000, 0)", true),
    keys("whole", "integer", "CASE g % 3 WHEN 0 THEN 2147483647 - g WHEN 1 THEN -2147483648 + g END", true),
    keys(
        "big",
        "bigint",
        "CASE g % 3 WHEN 0 THEN 9223372036854775807 - g WHEN 1 THEN -9223372036854775807 - 1 + g END",
        true,
    ),
    keys("named_number", "number_of_mine", "g % 500", false),
    // Each row has another key, so chunks have as many keys as are read at once.
    Keys { table: "many", key: "bigint", value: "g * 7000000001", rows: 250_000, by_keys: true },
];
const TEXTS: &[Keys] = &[
    keys("plain", "text", TEXT, true),
    // The values are compressed, so few blocks have more bytes of keys than are read at once.
    keys("long", "text", LONG, true),
    keys("varying", "character varying", TEXT, true),
    keys("short", "character varying(12)", TEXT, true),
    keys("named_text", "text_of_mine", TEXT, false),
];
const PADDED: &[Keys] = &[keys("padded", "character(12)", TEXT, false)];
const UUIDS: &[Keys] = &[keys("ids", "uuid", "nullif(md5((g % 2000)::text), md5('7'))::uuid", true)];
const LATIN: &[Keys] = &[keys("latin", "text", TEXT, false)];

impl Keys {
    /// Creates the table. On the target the columns have another order, and on the source one was dropped.
    fn create(&self, sessions: &mut [Client; 2]) {
        let Keys { table, key, value, rows, .. } = self;
        let [source, target] = sessions;
        source
            .batch_execute(&format!(
                "CREATE TABLE {table} (gone int, tenant {key}, id int PRIMARY KEY, filler text);
                 ALTER TABLE {table} DROP gone;
                 INSERT INTO {table} SELECT ({value})::{key}, g, CASE WHEN {rows} < 10000 THEN md5(g::text) || repeat('x', 60) END FROM generate_series(1, {rows}) g;
                 DELETE FROM {table} WHERE id % 11 = 0"
            ))
            .unwrap();
        target
            .batch_execute(&format!("CREATE TABLE {table} (filler text, id int PRIMARY KEY, tenant {key})"))
            .unwrap();
    }

    /// Returns the rows by their number.
    fn rows(&self, session: &mut Client) -> Vec<Row> {
        let query = format!("SELECT id, tenant::text, filler FROM {} ORDER BY id", self.table);
        let rows = session.query(&query, &[]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

type Row = (i32, Option<String>, Option<String>);

/// Returns whether the row is in a bucket that moves.
fn moves_by(of: &str, (_, key, _): &Row) -> bool {
    let count = NonZeroU32::new(64).unwrap();
    let bucket = |key: &str| match of {
        "bigint" => shard_for(key.parse::<i64>().unwrap(), count),
        "uuid" => shard_for(u128::from_str_radix(&key.replace('-', ""), 16).unwrap().to_be_bytes(), count),
        _ => shard_for(key, count),
    };
    key.as_deref().is_some_and(|key| bucket(key) <= 20)
}

/// Copies the tables of a keyspace, and copies them again with the extension on the source, which then hashes
/// natively.
fn moves(cluster: &Cluster, from: &ShardDatabase, keyspace: &str, of: &str, tables: &[Keys]) {
    let to = ShardDatabase::of(cluster, 1);
    let mut sessions = [from, &to].map(|place| {
        let mut session = place.session(cluster).unwrap();
        let types = "CREATE DOMAIN number_of_mine AS bigint; CREATE DOMAIN text_of_mine AS text";
        // They exist already if another keyspace came before.
        let _ = session.batch_execute(types);
        session.batch_execute(&format!("SET ROLE {OWNER}")).unwrap();
        session
    });
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!(
            "SELECT shard_keyspace_add('{keyspace}', 'hash', buckets => 64, key_type => '{of}', shards => '{{{}}}')",
            from.shard
        ))
        .unwrap();
    for keys in tables {
        keys.create(&mut sessions);
        master.execute("SELECT shard_table_add($1, 'tenant', $2)", &[&keys.table, &keyspace]).unwrap();
    }
    let plan = PLAN.replace("$source", &format!("'{}'", from.shard));
    let plan = plan.replace("$keyspace", &format!("'{keyspace}'"));
    let copied = |sessions: &mut [Client; 2]| -> Vec<Vec<Row>> {
        let split = Split::plan_by(cluster, &plan).unwrap();
        // The target's columns are in another order, which is a remark.
        split.accept_remarks().unwrap();
        assert_eq!(split.findings().unwrap(), Vec::<String>::new(), "{keyspace}");
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
        split.wait("cutover_pending", LIMIT).unwrap();
        let found = tables.iter().map(|keys| keys.rows(&mut sessions[1])).collect();
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        found
    };
    let slowly = copied(&mut sessions);
    let log = std::fs::read_to_string(cluster.servers[from.server].log_path()).unwrap();
    let mut shard = from.session(cluster).unwrap();
    let is_utf8 = from.encoding == "UTF8";
    if is_utf8 {
        shard
            .batch_execute(&format!(
                "CREATE SCHEMA fast; CREATE EXTENSION shardmaster SCHEMA fast; GRANT USAGE ON SCHEMA fast TO {MOVER}"
            ))
            .unwrap();
    }
    let quickly = copied(&mut sessions);
    let again = std::fs::read_to_string(cluster.servers[from.server].log_path()).unwrap();
    for ((keys, slowly), quickly) in tables.iter().zip(slowly).zip(quickly) {
        let table = keys.table;
        assert_eq!(asks_for_keys(&log, table), keys.by_keys, "{table}");
        assert!(!asks_for_keys(&again[log.len()..], table), "{table}");
        let mut rows = keys.rows(&mut shard);
        let all = rows.len();
        rows.retain(|row| moves_by(of, row));
        assert!(rows.len() > all / 10 && rows.len() < all, "{table}: {} of {all}", rows.len());
        for (way, found) in [("slowly", slowly), ("quickly", quickly)] {
            let differs = rows.iter().zip(&found).find(|(a, b)| a != b);
            assert!(
                found.len() == rows.len() && differs.is_none(),
                "{table}, {way}: {} of {}, {differs:?}",
                found.len(),
                rows.len()
            );
        }
    }
    if is_utf8 {
        shard.batch_execute("DROP SCHEMA fast CASCADE").unwrap();
    }
}

fn asks_for_keys(log: &str, table: &str) -> bool {
    let names = [format!("\"{table}\" t "), format!(".{table} t "), format!(" {table} t ")];
    log.lines()
        .any(|line| line.contains("COPY (SELECT DISTINCT ") && names.iter().any(|name| line.contains(name)))
}

#[test]
fn rows_of_buckets_are_those_of_the_predicate() {
    let cluster = driver::cluster().unwrap();
    let source = ShardDatabase::of(&cluster, 0);
    let mut admin = cluster.servers[0].superuser("postgres").unwrap();
    admin.batch_execute(&format!("ALTER ROLE {MOVER} SET log_statement = 'all'")).unwrap();
    let latin = ShardDatabase::create(&cluster, 0, "LATIN1").unwrap();
    moves(&cluster, &source, "texts", "text", TEXTS);
    if !is_long_run() {
        return;
    }
    moves(&cluster, &source, "numbers", "bigint", NUMBERS);
    moves(&cluster, &source, "uuids", "uuid", UUIDS);
    moves(&cluster, &source, "chars", "char", PADDED);
    moves(&cluster, &latin, "latins", "text", LATIN);
}
