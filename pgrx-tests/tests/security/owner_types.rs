//! Code of an owner that no catalog row of the table itself names: partition keys of parents, and types that
//! a table had when a session made its temporary tables.

use shardmaster_tests::attacker::{is_mover, own_the_table, session};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{
    LIMIT, as_worker, before_the_next_step, by_superusers, cluster, cluster_of, cut_over_and_compare, plan,
    source, to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

const ABOVE: &str = "CREATE TABLE above (LIKE items) PARTITION BY LIST (steady(val)); ALTER TABLE above ATTACH PARTITION items FOR VALUES IN (true);
    CREATE TABLE top (LIKE items) PARTITION BY LIST (code); ALTER TABLE top ATTACH PARTITION above DEFAULT";
const NOT_ABOVE: &str =
    "ALTER TABLE top DETACH PARTITION above; ALTER TABLE above DETACH PARTITION items; DROP TABLE top, above";

/// A row that is written to a partition must satisfy the partition keys of the tables above it.
#[test]
fn the_keys_of_tables_above_are_looked_through() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    for shard in ["shard_a", "shard_b"] {
        let mut owner = session(&cluster, shard);
        owner.batch_execute(ABOVE).unwrap();
        let found = split.findings().unwrap();
        assert!(
            found.iter().any(|text| text.contains("public.above: function public.steady(text)")),
            "{found:?}"
        );
        owner.batch_execute(NOT_ABOVE).unwrap();
    }
    to_pending(&split);
    let mut owner = session(&cluster, "shard_b");
    before_the_next_step(&cluster, &split, || owner.batch_execute(ABOVE).unwrap());
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(error.contains("the mover would run untrusted code: public.above"), "{error}");
    assert!(!is_mover(&cluster));
    owner.batch_execute(NOT_ABOVE).unwrap();
    split.call("replay_tail").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(!is_mover(&cluster));
}

const TABLE: &str = "CREATE DOMAIN number AS int; CREATE DOMAIN word AS text;
    CREATE TABLE items (tenant text, id number, val word, code int, PRIMARY KEY (tenant, id))";

/// Runs a split into its finish, which has deleted some batches, and whose next batch waits for a row.
fn within_a_finish(then: impl FnOnce(&Cluster, &Split<'_>)) {
    let cluster = cluster_of(&["shardmaster.copy_streams = 1"], TABLE);
    own_the_table(&cluster);
    by_superusers(&cluster, "ALTER DOMAIN number OWNER TO mallory; ALTER DOMAIN word OWNER TO mallory");
    // Seven rows fill a block.
    let fill = "INSERT INTO items SELECT 'moves', i, repeat('x', 1050), i FROM generate_series(1001, 31000) i; ANALYZE items";
    source(&cluster).batch_execute(fill).unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut holder = source(&cluster);
    holder.batch_execute("BEGIN; SELECT FROM items WHERE tenant = 'moves' AND id = 5000 FOR UPDATE").unwrap();
    split.call("finish").unwrap();
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
    wait::until_true(&mut source(&cluster), "a batch to wait for the row", LIMIT, waits).unwrap();
    then(&cluster, &split);
    holder.batch_execute("COMMIT").unwrap();
    let error = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(!is_mover(&cluster), "{error}");
    let left: i64 =
        source(&cluster).query_one("SELECT count(*) FROM items WHERE tenant = 'moves'", &[]).unwrap().get(0);
    assert!(left > 0 && left < 30_000, "{left}");
}

/// Another table replaces one whose key was of a domain.
#[test]
#[ignore = "make test-all: a key's domain; make test has a_domain_that_a_column_was_of_runs_nothing_behind_a_batch_of_finish"]
fn a_domain_that_a_key_was_of_runs_nothing_behind_a_batch_of_finish() {
    within_a_finish(|cluster, _| {
        let swap = "BEGIN; ALTER TABLE items RENAME TO kept; CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id));
            ALTER DOMAIN number ADD CONSTRAINT c CHECK (evil(value::text)) NOT VALID; COMMIT";
        session(cluster, "shard_b").batch_execute(swap).unwrap();
    });
}

/// A column has another type now, and some of its rows are compared by their values.
#[test]
fn a_domain_that_a_column_was_of_runs_nothing_behind_a_batch_of_finish() {
    within_a_finish(|cluster, _| {
        let swap = "BEGIN; ALTER TABLE items ALTER val TYPE text; ALTER TABLE items DISABLE TRIGGER USER;
            UPDATE items SET val = val || 'y' WHERE id > 5000; ALTER TABLE items ENABLE TRIGGER USER;
            ALTER DOMAIN word ADD CONSTRAINT c CHECK (evil(value)) NOT VALID; COMMIT";
        session(cluster, "shard_b").batch_execute(swap).unwrap();
    });
}

/// This happens before the cutover, between two steps of a comparison. Its temporary tables are made again.
#[ignore = "make test-all: a comparison; make test has a_domain_that_a_column_was_of_runs_nothing_behind_a_batch_of_finish"]
#[test]
fn a_comparison_goes_on_by_the_types_of_now() {
    let cluster = cluster_of(&["shardmaster.copy_streams = 1", "shardmaster.step_time = '20ms'"], TABLE);
    own_the_table(&cluster);
    by_superusers(&cluster, "ALTER DOMAIN number OWNER TO mallory; ALTER DOMAIN word OWNER TO mallory");
    let fill = "INSERT INTO items SELECT 'moves', i, repeat('x', 1050), i FROM generate_series(1001, 31000) i; ANALYZE items";
    source(&cluster).batch_execute(fill).unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    split.call("verify").unwrap();
    let compared = |split: &Split<'_>| -> i64 {
        let query = "SELECT coalesce(sum(rows_compared), 0)::bigint FROM shard_split_verification($1)";
        split.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0)
    };
    wait::until("a part to be compared", LIMIT, || Ok((compared(&split) > 0).then_some(()))).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    assert!(compared(&split) < 30_000);
    // The same words have another type, and some rows differ.
    let swap = "BEGIN; ALTER DOMAIN word RENAME TO kept; CREATE DOMAIN word AS text; ALTER TABLE items ALTER val TYPE word; COMMIT";
    session(&cluster, "shard_b").batch_execute(swap).unwrap();
    let differ = "UPDATE items SET val = val || 'y' WHERE id > 5000";
    as_worker(&cluster, &split, 1).batch_execute(differ).unwrap();
    session(&cluster, "shard_b")
        .batch_execute("ALTER DOMAIN kept ADD CONSTRAINT c CHECK (evil(value)) NOT VALID")
        .unwrap();
    cluster.fault("").unwrap();
    wait::until("the comparison to end", LIMIT, || {
        let query = "SELECT bool_and(status NOT IN ('pending', 'running')) FROM shard_split_verification($1)";
        Ok(split.superuser()?.query_one(query, &[&split.id])?.get::<_, bool>(0).then_some(()))
    })
    .unwrap();
    assert!(!is_mover(&cluster));
}

/// Code that hides in an expression of the table `items`.
struct HiddenCode {
    what: &'static str,
    set: &'static str,
    by_superuser: &'static str,
    then: &'static str,
    undo: &'static str,
    says: &'static str,
}

const HIDDEN: [HiddenCode; 4] = [
    HiddenCode {
        what: "a type that an array without elements alone names",
        set: "CREATE DOMAIN dom AS int CHECK (evil(value::text)); CREATE TYPE comp AS (a dom)",
        by_superuser: "SELECT 1",
        then: "ALTER TABLE items ADD CONSTRAINT c CHECK (json_populate_record((ARRAY[]::comp[])[1], '{\"a\": 1}') IS NOT NULL) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP TYPE comp; DROP DOMAIN dom",
        says: "function public.evil(text)",
    },
    HiddenCode {
        what: "the key of a table that a number names",
        set: "CREATE TABLE par (a int) PARTITION BY HASH ((steady('x') AND a > 0))",
        by_superuser: "SELECT 1",
        then: "DO $$ BEGIN EXECUTE format('ALTER TABLE items ADD CONSTRAINT c CHECK (satisfies_hash_partition(%s::oid, 1, 0, id > 0)) NOT VALID', 'par'::regclass::oid); END $$",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP TABLE par",
        says: "satisfies_hash_partition",
    },
    HiddenCode {
        what: "a view that a superuser's function reads",
        set: "CREATE VIEW seen AS SELECT evil('x') AS x; GRANT SELECT ON seen TO PUBLIC",
        by_superuser: "CREATE FUNCTION sees() RETURNS boolean LANGUAGE sql BEGIN ATOMIC SELECT x FROM public.seen; END",
        then: "ALTER TABLE items ADD CONSTRAINT c CHECK (sees()) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP VIEW seen CASCADE",
        says: "seen, which belongs to role mallory",
    },
    HiddenCode {
        what: "an operator class for a type of the server's own",
        set: "CREATE FUNCTION alike(json, json) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT public.steady(''x'')'",
        by_superuser: "CREATE OR REPLACE FUNCTION hashed(json) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'; CREATE OPERATOR === (LEFTARG = json, RIGHTARG = json, FUNCTION = alike);
            CREATE OPERATOR CLASS alike DEFAULT FOR TYPE json USING hash AS OPERATOR 1 ===, FUNCTION 1 hashed(json)",
        then: "SELECT 1",
        undo: "DROP FUNCTION alike(json, json) CASCADE",
        says: "function public.alike(json,json), which belongs to role mallory",
    },
];

/// This exists since PostgreSQL 17.
const HIDDEN_IN_JSON: HiddenCode = HiddenCode {
    what: "a type that a query over JSON returns",
    set: "CREATE DOMAIN dom AS int CHECK (evil(value::text))",
    by_superuser: "SELECT 1",
    then: "ALTER TABLE items ADD CONSTRAINT c CHECK (JSON_VALUE('{\"a\": 1}'::jsonb, '$.a' RETURNING dom) IS NOT NULL) NOT VALID",
    undo: "ALTER TABLE items DROP CONSTRAINT c; DROP DOMAIN dom",
    says: "function public.evil(text)",
};

/// Objects that are in no dependency list of an expression are found in the expression itself.
#[test]
fn what_hides_in_an_expression_is_found() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    let set = |hidden: &HiddenCode, shard: &str| {
        let mut owner = session(&cluster, shard);
        owner.batch_execute(hidden.set).unwrap_or_else(|error| panic!("{}: {error:?}", hidden.what));
        let server = cluster.servers.iter().find(|server| server.name() == shard).unwrap();
        server.superuser(DATABASE).unwrap().batch_execute(hidden.by_superuser).unwrap();
        owner.batch_execute(hidden.then).unwrap_or_else(|error| panic!("{}: {error:?}", hidden.what));
    };
    let version = "SELECT current_setting('server_version_num')::int >= 170000";
    let knows_json: bool = source(&cluster).query_one(version, &[]).unwrap().get(0);
    let hidden: Vec<HiddenCode> = HIDDEN.into_iter().chain(knows_json.then_some(HIDDEN_IN_JSON)).collect();
    for hidden in &hidden {
        for shard in ["shard_a", "shard_b"] {
            set(hidden, shard);
            let found = split.findings().unwrap();
            assert!(found.iter().any(|text| text.contains(hidden.says)), "{}: {found:?}", hidden.what);
            session(&cluster, shard).batch_execute(hidden.undo).unwrap();
            assert!(!is_mover(&cluster), "{}", hidden.what);
        }
    }
    to_pending(&split);
    for hidden in &hidden {
        before_the_next_step(&cluster, &split, || set(hidden, "shard_b"));
        let error = split.wait("completed", LIMIT).unwrap_err().to_string();
        assert!(error.contains(hidden.says), "{}: {error}", hidden.what);
        assert!(!is_mover(&cluster), "{}", hidden.what);
        session(&cluster, "shard_b").batch_execute(hidden.undo).unwrap();
        split.call("replay_tail").unwrap();
        split.wait_settled(LIMIT).unwrap();
    }
    assert!(!is_mover(&cluster));
}
