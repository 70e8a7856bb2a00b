//! The tables and functions that native capture reads on a shard belong to the mover, who may change them at
//! will. Each of the tables is given every wrong content and shape, and each function every wrong form.
//! Writes are captured or refused with a clear error, and no server crashes.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, NATIVE_CAPTURE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::split::Split;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A keyspace with one table on the source: the type of its shard-by column, a key that moves, and one that stays.
struct Keyspace {
    name: &'static str,
    create: &'static str,
    by: &'static str,
    moves: &'static str,
    stays: &'static str,
}

const KEYSPACES: [Keyspace; 4] = [
    Keyspace {
        name: "numbers",
        create: "SELECT shard_keyspace_add('numbers', 'directory', key_type => 'bigint')",
        by: "bigint",
        moves: "1",
        stays: "9",
    },
    Keyspace {
        name: "texts",
        create: "SELECT shard_keyspace_add('texts', 'directory')",
        by: "text",
        moves: "a",
        stays: "z",
    },
    Keyspace {
        name: "uuids",
        create: "SELECT shard_keyspace_add('uuids', 'directory', key_type => 'uuid')",
        by: "uuid",
        moves: "00000000-0000-0000-0000-000000000001",
        stays: "00000000-0000-0000-0000-000000000009",
    },
    Keyspace {
        name: "buckets",
        create: "SELECT shard_keyspace_add('buckets', 'hash', buckets => 2, key_type => 'integer', shards => '{shard_a}')",
        by: "integer",
        moves: "1",
        stays: "2",
    },
];

/// Types that a column may get, each with a value.
const TYPES: [(&str, &str); 19] = [
    ("text", "'x'"),
    ("text", "repeat('x', 100000)"),
    ("text", "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 3000) g)"),
    ("varchar(3)", "'x'"),
    ("bpchar(9)", "'x'"),
    ("name", "'x'"),
    ("\"char\"", "'x'"),
    ("bytea", "'\\xff00'"),
    ("bool", "true"),
    ("smallint", "-1"),
    ("int", "-2147483648"),
    ("bigint", "-9223372036854775808"),
    ("numeric", "'NaN'"),
    ("uuid", "'00000000-0000-0000-0000-000000000001'"),
    ("int[]", "'{1,NULL}'"),
    ("jsonb", "'{}'"),
    ("timestamptz", "'infinity'"),
    ("a_domain", "NULL"),
    ("a_pair", "ROW(NULL, 1)"),
];

/// Objects that may take a table's place, with columns of the same names and types where possible.
const KINDS: [&str; 12] = [
    "",
    "CREATE VIEW $t AS SELECT * FROM $t_was",
    "CREATE MATERIALIZED VIEW $t AS SELECT * FROM $t_was",
    "CREATE TABLE $t (LIKE $t_was) PARTITION BY HASH ($c)",
    "CREATE UNLOGGED TABLE $t (LIKE $t_was)",
    "CREATE TABLE $t () INHERITS ($t_was)",
    "CREATE TABLE $t ()",
    "CREATE TYPE $t AS (a int)",
    "CREATE SEQUENCE $t",
    "CREATE TABLE $t AS SELECT NULL::int AS a, NULL::text AS b, NULL::bytea AS c FROM generate_series(1, 3)",
    "CREATE INDEX $i ON $t_was ($c)",
    "CREATE FOREIGN TABLE $t (key int) SERVER nowhere",
];

/// Changes to a table that stays a table.
const SHAPES: [&str; 17] = [
    "CREATE TABLE more () INHERITS ($t); INSERT INTO more DEFAULT VALUES",
    "ALTER TABLE $t ENABLE ROW LEVEL SECURITY; ALTER TABLE $t FORCE ROW LEVEL SECURITY",
    "ALTER TABLE $t ADD CHECK ($c IS NULL) NOT VALID",
    "ALTER TABLE $t ADD more text DEFAULT repeat('x', 3000)",
    "ALTER TABLE $t ADD more text GENERATED ALWAYS AS ('x') STORED",
    "ALTER TABLE $t REPLICA IDENTITY NOTHING",
    "ALTER TABLE $t REPLICA IDENTITY FULL",
    "CREATE INDEX ON $t (($c::text)); CREATE INDEX ON $t ($c) WHERE $c IS NULL; CREATE INDEX ON $t USING brin ($c)",
    "CREATE RULE more AS ON INSERT TO $t DO INSTEAD NOTHING",
    "CREATE RULE more AS ON INSERT TO $t DO ALSO SELECT 1 / 0",
    "CREATE TRIGGER more AFTER INSERT ON $t EXECUTE FUNCTION public.fails()",
    "ALTER TABLE $t OWNER TO owner",
    "ALTER TABLE $t SET SCHEMA public",
    "ALTER TABLE $t ALTER $c SET DEFAULT NULL",
    "CREATE STATISTICS more ON ($c IS NULL), ($c IS NOT NULL) FROM $t; ANALYZE $t",
    "CLUSTER $t",
    "DROP TABLE $t CASCADE",
];

/// Changes to the sequence of a queue.
const SEQUENCES: [&str; 9] = [
    "ALTER SEQUENCE $t MINVALUE -9223372036854775808; SELECT setval('$t', -9223372036854775808)",
    "ALTER SEQUENCE $t MAXVALUE 9223372036854775807; SELECT setval('$t', 9223372036854775807)",
    "ALTER SEQUENCE $t AS smallint",
    "ALTER SEQUENCE $t INCREMENT -1 MINVALUE -5 MAXVALUE 5 CYCLE RESTART",
    "DROP SEQUENCE $t",
    "ALTER SEQUENCE $t RENAME TO gone; CREATE TABLE $t (last_value text, log_cnt bigint, is_called bool); INSERT INTO $t VALUES (NULL)",
    "ALTER SEQUENCE $t RENAME TO gone; CREATE VIEW $t AS SELECT NULL::bigint AS last_value",
    "ALTER SEQUENCE $t RENAME TO gone; CREATE TYPE $t AS (last_value bigint)",
    "ALTER SEQUENCE $t OWNER TO owner",
];

/// Changes to a function that is called by its oid: $f is its name, $a its argument types.
const FUNCTIONS: [&str; 9] = [
    "ALTER FUNCTION $f($a) STRICT",
    "ALTER FUNCTION $f($a) SECURITY INVOKER",
    "DROP FUNCTION $f($a)",
    "DROP FUNCTION $f($a); CREATE FUNCTION $f($a) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1'",
    "DROP FUNCTION $f($a); CREATE FUNCTION $f($a) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
    "DROP FUNCTION $f($a); CREATE FUNCTION $f($a) RETURNS void LANGUAGE plpgsql STRICT AS 'BEGIN END'",
    "DROP FUNCTION $f($a); CREATE PROCEDURE $f($a) LANGUAGE plpgsql AS 'BEGIN COMMIT; END'",
    "DROP FUNCTION $f($a); CREATE FUNCTION $f(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN length($1); END'",
    "CREATE FUNCTION $f(VARIADIC anyarray) RETURNS int LANGUAGE sql AS 'SELECT 1'",
];

fn set_up(cluster: &Cluster) {
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        for Keyspace { name, by, .. } in &KEYSPACES {
            owner
                .batch_execute(&format!(
                    "SET ROLE {OWNER}; CREATE TABLE of_{name} (id bigint PRIMARY KEY, tenant {by}, v text);
                     GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON of_{name} TO {CLIENT}"
                ))
                .unwrap();
        }
    }
    let mut master = cluster.superuser().unwrap();
    for Keyspace { name, create, moves, stays, .. } in &KEYSPACES {
        master.batch_execute(create).unwrap();
        master.execute("SELECT shard_table_add($1, 'tenant', $2)", &[&format!("of_{name}"), name]).unwrap();
        if *name != "buckets" {
            let assign = "SELECT shard_assign_many(ARRAY[$1, $2], 'shard_a', $3)";
            master.execute(assign, &[moves, stays, name]).unwrap();
        }
    }
}

/// Returns changes to the scope's table or another one. They are made in transactions that are rolled back.
fn contents(table: &str, columns: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let free = format!(
        "DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype <> 'n'
            LOOP EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I CASCADE', c); END LOOP; END $$"
    );
    let unbound: Vec<String> = columns
        .iter()
        .map(|column| {
            format!("ALTER TABLE {table} ALTER {column} DROP NOT NULL, ALTER {column} DROP DEFAULT")
        })
        .collect();
    let free = format!("{free}; {}", unbound.join("; "));
    all.push(free.clone());
    all.push(format!("{free}; INSERT INTO {table} DEFAULT VALUES"));
    all.push(format!("{free}; INSERT INTO {table} SELECT t.* FROM {table} t, generate_series(1, 3)"));
    all.push(format!("{free}; TRUNCATE {table}"));
    all.push(format!(
        "{free}; INSERT INTO {table} SELECT t.* FROM generate_series(1, 2000) LEFT JOIN {table} t ON false"
    ));
    // Of the table of sides only these columns are read.
    for column in columns.iter().take(4) {
        all.push(format!("{free}; UPDATE {table} SET {column} = NULL"));
        all.push(format!("ALTER TABLE {table} DROP {column} CASCADE"));
        all.push(format!("ALTER TABLE {table} RENAME {column} TO other"));
        all.push(format!("{free}; CREATE UNIQUE INDEX other ON {table} ({column}); ALTER TABLE {table} ALTER {column} SET NOT NULL, REPLICA IDENTITY USING INDEX other"));
        for (kind, value) in TYPES {
            let change = format!(
                "{free}; ALTER TABLE {table} ALTER {column} TYPE {kind} USING {value}; INSERT INTO {table} DEFAULT VALUES"
            );
            all.push(format!("{change}; ALTER TABLE {table} REPLICA IDENTITY FULL"));
            all.push(format!("{free}; TRUNCATE {table}; ALTER TABLE {table} ALTER {column} TYPE {kind} USING NULL; INSERT INTO {table} ({column}) VALUES ({value})"));
        }
    }
    all
}

/// Returns the statements of a client, which run one by one.
fn writes(keyspace: &Keyspace) -> Vec<String> {
    let Keyspace { name, moves, stays, .. } = keyspace;
    vec![
        format!(
            "INSERT INTO of_{name} VALUES (1001, '{moves}', 'x'), (1002, '{stays}', 'x'), (1003, NULL, 'x')"
        ),
        format!("INSERT INTO of_{name} SELECT g, '{moves}', 'x' FROM generate_series(2000, 2100) g"),
        format!("UPDATE of_{name} SET v = 'y'"),
        format!("UPDATE of_{name} SET tenant = '{stays}', id = id + 10000 WHERE tenant = '{moves}'"),
        format!("DELETE FROM of_{name}"),
        format!("TRUNCATE of_{name}"),
    ]
}

struct TriedChanges {
    changed: usize,
    written: usize,
    refused: usize,
}

/// Makes a change in a transaction, then writes, and counts the outcomes.
fn try_change(source: &mut Client, change: &str, writes: &[String], told: &mut TriedChanges) {
    source.batch_execute("BEGIN").unwrap();
    let is_changed = source.batch_execute(change).is_ok();
    assert!(!source.is_closed(), "the server has ended by: {change}");
    if is_changed {
        told.changed += 1;
        source.batch_execute("SAVEPOINT s").unwrap();
        for write in writes {
            match source.batch_execute(write) {
                Ok(()) => told.written += 1,
                Err(error) => {
                    let error = error.as_db_error().unwrap_or_else(|| panic!("{change}; {write}: {error}"));
                    assert_ne!(error.code().code(), "XX000", "{change}; {write}: {error}");
                    told.refused += 1;
                    source.batch_execute("ROLLBACK TO s").unwrap();
                }
            }
        }
    }
    source.batch_execute("ROLLBACK").unwrap();
}

fn columns(source: &mut Client, table: &str) -> Vec<String> {
    let query = "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    source.query(query, &[&table]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn of_table(source: &mut Client, table: &str) -> Vec<String> {
    let columns = columns(source, table);
    let mut all = contents(table, &columns);
    let name = table.rsplit('.').next().unwrap();
    let fill = |text: &str| {
        text.replace("$t", table)
            .replace("$i", name)
            .replace("$c", columns.first().map_or("key", String::as_str))
    };
    all.extend(SHAPES.iter().map(|shape| fill(shape)));
    all.extend(KINDS.iter().map(|kind| format!("ALTER TABLE {table} RENAME TO {name}_was; {}", fill(kind))));
    all
}

#[test]
#[ignore = "make test-all: each content and shape; make test has split::native_capture::what_its_owner_makes_of_it_harms_nobody"]
fn no_content_of_what_it_reads_ends_a_server() {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    set_up(&cluster);
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    source
        .batch_execute(&format!(
            "CREATE EXTENSION shardmaster; {NATIVE_CAPTURE};
             CREATE DOMAIN a_domain AS bigint; CREATE TYPE a_pair AS (a int, b int);
             CREATE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''own''; END';
             CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing"
        ))
        .unwrap();
    let started = "SELECT pg_postmaster_start_time()::text || (SELECT min(backend_start)::text FROM pg_stat_activity WHERE backend_type = 'checkpointer')";
    let started_at: String = source.query_one(started, &[]).unwrap().get(0);
    let mut old_session = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
    for (number, keyspace) in KEYSPACES.iter().enumerate().take(at_most(1)) {
        let plan = match keyspace.name {
            "buckets" => {
                "SELECT shard_split_plan('shard_a', 'shard_b', '{0}', keyspace => 'buckets')".to_owned()
            }
            name => format!(
                "SELECT shard_split_plan('shard_a', 'shard_b', '{{{}}}', keyspace => '{name}')",
                keyspace.moves
            ),
        };
        let split = Split::plan_by(&cluster, &plan).unwrap();
        // A function that only the source has is a remark.
        split.accept_remarks().unwrap();
        split.call("start_dual_write").unwrap();
        split.wait("dual_write", LIMIT).unwrap();
        split.call("pause").unwrap();
        split.wait_held("shard_split_resume", LIMIT).unwrap();
        let id = split.id;
        let of = |name: &str| format!("shardmaster_agent.{name}");
        let writes = writes(keyspace);
        let mut told = TriedChanges { changed: 0, written: 0, refused: 0 };
        let queues = format!("SELECT relname::text FROM pg_class WHERE relname ~ '^queue_{id}_\\d+$'");
        let queue: String = source.query_one(&queues, &[]).unwrap().get(0);
        let scope = of(&format!("scope_{id}_s"));
        let mut changes = of_table(&mut source, &scope);
        if number == 0 {
            for table in [of("side"), of(&queue), of(&format!("barrier_{id}"))] {
                changes.extend(of_table(&mut source, &table));
            }
            let sequence = of(&format!("queue_{id}_seq"));
            changes.extend(SEQUENCES.iter().map(|text| text.replace("$t", &sequence)));
            let functions = format!(
                "SELECT oid::regproc::text, oidvectortypes(proargtypes) FROM pg_proc
                  WHERE pronamespace = 'shardmaster_agent'::regnamespace AND proname ~ '^capture_{id}_\\d+_'"
            );
            let functions = source.query(&functions, &[]).unwrap();
            assert!(functions.len() >= 2);
            for row in functions {
                let (name, takes): (String, String) = (row.get(0), row.get(1));
                changes.extend(FUNCTIONS.iter().map(|text| text.replace("$f", &name).replace("$a", &takes)));
            }
        }
        for change in &changes {
            try_change(&mut source, change, &writes, &mut told);
        }
        println!(
            "{}: {} changes, {} did; {} written, {} refused",
            keyspace.name,
            changes.len(),
            told.changed,
            told.written,
            told.refused
        );
        assert!(told.changed * 2 > changes.len() && told.written > told.changed);

        // The change is also committed, for sessions that were open before and for new ones. A scope without
        // its values contains nobody's rows, or all rows that PL/pgSQL gives it.
        let key = columns(&mut source, &scope).remove(0);
        let was = format!(
            "ALTER TABLE {scope} RENAME TO was; CREATE TABLE {scope} (LIKE shardmaster_agent.was); GRANT ALL ON {scope} TO mover; ALTER TABLE {scope} OWNER TO mover"
        );
        source.batch_execute(&format!("{was}; INSERT INTO {scope} SELECT * FROM shardmaster_agent.was; ALTER TABLE {scope} ALTER {key} DROP NOT NULL; INSERT INTO {scope} DEFAULT VALUES")).unwrap();
        let mut new_session = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
        for client in [&mut old_session, &mut new_session] {
            for write in &writes {
                let _ = client.batch_execute(write);
                assert!(!client.is_closed(), "{write}");
            }
        }
        source
            .batch_execute(&format!(
                "DROP TABLE {scope}; ALTER TABLE shardmaster_agent.was RENAME TO scope_{id}_s"
            ))
            .unwrap();
        split.call("resume").unwrap();
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
    }
    let now: String = source.query_one(started, &[]).unwrap().get(0);
    assert_eq!(now, started_at);
}
