//! Columns and rows of shards: the order of columns, columns that a login may read, and rows that a policy hides.

use shardmaster_tests::cluster::DATABASE;
use shardmaster_tests::fixture::{self, LIMIT, by_superuser, by_superusers};
use shardmaster_tests::queries::{analyst, error, hint, json, stage};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

#[test]
fn columns_in_another_order_are_not_mixed_up() {
    let cluster = stage(&[]);
    // The order is tenant, id, code, val here, and tenant, id, val, code on the other shard.
    by_superuser(
        &cluster,
        1,
        "ALTER TABLE items DROP COLUMN val; ALTER TABLE items ADD val text; INSERT INTO items VALUES ('other', 1, 5, '7')",
    );
    let mut client = analyst(&cluster);
    let all = "shard_query('SELECT * FROM items')";
    let row = client
        .query_one(
            &format!("SELECT val, code FROM {all} AS t (tenant text, id int, val text, code int) WHERE tenant = 'other'"),
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, String>(0), row.get::<_, i32>(1)), ("7".to_owned(), 5));
    // If all columns are texts, their types do not show the order.
    for declared in ["val text, code text", "code text, val text"] {
        let query = format!(
            "SELECT count(*), count(*) FILTER (WHERE val = '7' AND code = '5' AND tenant = 'other')
               FROM {all} AS t (tenant text, id text, {declared})"
        );
        let row = client.query_one(&query, &[]).unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (601, 1), "{declared}");
    }
    let call = format!("SELECT * FROM {all} AS t (a text, b text, c text, d text)");
    let (state, message) = error(&mut client, &call);
    let names = ["shard \"shard_b\"", "shard \"shard_a\"", "tenant, id, code, val", "tenant, id, val, code"];
    assert!(state == "42804" && names.iter().all(|name| message.contains(name)), "{message}");
    let found =
        json(&mut client, "shard_query_json($$SELECT * FROM items WHERE tenant = 'other' OR id = 1$$)");
    assert_eq!(
        found,
        [
            r#"{"id": 1, "val": "1", "code": 1, "tenant": "stays"}"#,
            r#"{"id": 1, "val": "7", "code": 5, "tenant": "other"}"#,
        ]
    );
    // Another name at the same position is another column. Names that the statement itself gives are the same
    // everywhere.
    by_superuser(&cluster, 1, "ALTER TABLE items RENAME val TO note");
    let call = format!("SELECT * FROM {all} AS t (tenant text, id int, val text, code int)");
    assert_eq!(error(&mut client, &call).0, "42804");
    let count = "SELECT sum(n)::bigint FROM shard_query('SELECT count(*) FROM items') AS t (n bigint)";
    assert_eq!(client.query_one(count, &[]).unwrap().get::<_, i64>(0), 601);
}

#[test]
fn a_column_that_may_not_be_read_is_told_as_that_during_a_split() {
    let cluster = stage(&[]);
    by_superusers(
        &cluster,
        "REVOKE SELECT ON items FROM reader; GRANT SELECT (tenant, id) ON items TO reader",
    );
    let mut client = analyst(&cluster);
    let mut refused = || {
        for statement in [
            "SELECT val FROM items",
            "SELECT * FROM items",
            "SELECT id FROM items WHERE code = 1",
            "SELECT i FROM items i",
        ] {
            let call = format!("SELECT * FROM shard_query_json('{statement}')");
            assert_eq!(error(&mut client, &call).0, "42501", "{statement}");
        }
        let count = "SELECT sum(id)::bigint FROM shard_query('SELECT tenant, id FROM items') AS t (tenant text, id int)";
        assert_eq!(client.query_one(count, &[]).unwrap().get::<_, i64>(0), 300 * 601);
        let nothing = "SELECT * FROM shard_query_json('SELECT nothing FROM items')";
        assert_eq!(error(&mut client, nothing).0, "42703");
    };
    refused();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    fixture::to_pending(&split);
    refused();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    refused();
}

#[test]
fn a_policy_hides_no_row_from_a_statement_without_a_word() {
    let cluster = stage(&[]);
    by_superusers(
        &cluster,
        "GRANT UPDATE ON items TO reader; ALTER TABLE items ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON items TO reader USING (tenant = 'stays')",
    );
    cluster.superuser().unwrap().batch_execute("SELECT shard_grant('analyst', 'operator')").unwrap();
    let mut client = analyst(&cluster);
    let update = "UPDATE items SET code = code";
    for call in [
        format!("CALL shard_execute('{update}')"),
        format!("CALL shard_execute('{update}', in_transaction => false)"),
    ] {
        assert_eq!(error(&mut client, &call).0, "42501", "{call}");
        assert!(hint(&mut client, &call).contains("by_policies => true"), "{call}");
    }
    let query = "SELECT sum(rows)::bigint FROM shard_executions() WHERE state = 'done'";
    client.batch_execute(&format!("CALL shard_execute('{update}', by_policies => true)")).unwrap();
    assert_eq!(client.query_one(query, &[]).unwrap().get::<_, i64>(0), 300);
    // Queries respect policies, unless they count rows for routes.
    let count = "SELECT sum(n)::bigint FROM shard_query('SELECT count(*) FROM items') AS t (n bigint)";
    assert_eq!(client.query_one(count, &[]).unwrap().get::<_, i64>(0), 300);
    assert_eq!(error(&mut client, "SELECT * FROM shard_misplaced()").0, "42501");
    by_superusers(&cluster, "ALTER ROLE reader BYPASSRLS");
    client.batch_execute(&format!("CALL shard_execute('{update}')")).unwrap();
    assert_eq!(client.query_one(query, &[]).unwrap().get::<_, i64>(0), 900);
}

/// No row of that shard can have them, and the rows of the others are still found.
#[test]
fn a_letter_that_a_shards_encoding_lacks_fails_no_query() {
    let cluster = stage(&[]);
    by_superuser(
        &cluster,
        1,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    let mut latin = cluster.servers[1].superuser("latin").unwrap();
    latin
        .batch_execute(
            "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id));
             INSERT INTO items VALUES ('l', 1, 'é', 1), ('l', 2, NULL, 2); GRANT SELECT ON items TO reader",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let conninfo = cluster.servers[1].conninfo("latin", "postgres");
    master.execute("SELECT shard_add('latin', $1)", &[&conninfo]).unwrap();
    by_superuser(&cluster, 1, "INSERT INTO items VALUES ('b', 1, '日本', 1)");
    let mut client = analyst(&cluster);
    let mut found = |condition: &str| {
        let call = format!(
            "shard_query_json($q$SELECT tenant, id FROM items WHERE tenant IN ('l', 'b') AND {condition} -- 日$q$)"
        );
        json(&mut client, &call).join(" ")
    };
    let (b, l) = (r#"{"id": 1, "tenant": "b"}"#, r#"{"id": 1, "tenant": "l"}"#);
    for condition in ["val = '日本'", "val LIKE '%日%'", "val IN ('日本', 'x')", "val = ANY ('{日本}')"]
    {
        assert_eq!(found(condition), b, "{condition}");
    }
    assert_eq!(found("(val = '日本' OR val = 'é')"), format!("{b} {l}"));
    assert_eq!(found("val <> '日'"), format!("{b} {l}"));
    assert_eq!(found("val NOT LIKE '日%'"), l);
    // Only that shard can evaluate another expression.
    let other = "SELECT * FROM shard_query_json($$SELECT '日' AS letter FROM items$$)";
    assert_eq!(error(&mut client, other).0, "22P05");
    assert!(hint(&mut client, other).contains("name the other shards"));
    master
        .batch_execute(
            "SELECT shard_grant('analyst', 'operator'); CREATE SCHEMA imported AUTHORIZATION analyst",
        )
        .unwrap();
    client.batch_execute("SELECT shard_import('default', 'imported')").unwrap();
    let count = "SELECT count(*) FROM imported.items WHERE val COLLATE \"C\" = '日本'";
    assert_eq!(client.query_one(count, &[]).unwrap().get::<_, i64>(0), 1);
    let count = "SELECT count(*) FROM imported.items WHERE val = '日本'";
    assert_eq!(client.query_one(count, &[]).unwrap().get::<_, i64>(0), 1);
}

/// The mover must not get fewer rows than there are either. A fill waits, and says why.
#[test]
fn a_policy_hides_no_row_from_what_is_filled() {
    let cluster = stage(&[]);
    by_superusers(
        &cluster,
        "CREATE TABLE country (id int PRIMARY KEY); INSERT INTO country SELECT generate_series(1, 3); ALTER TABLE country OWNER TO app_owner",
    );
    by_superuser(&cluster, 1, "TRUNCATE country");
    for table in ["items", "country"] {
        by_superusers(
            &cluster,
            &format!(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
                 CREATE POLICY few ON {table} USING (id = 1)"
            ),
        );
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('vals', 'lookup', key_type => 'text', of => 'default');
             SELECT shard_table_add('items', 'val', 'vals');
             SELECT shard_table_add('country', NULL, policy => 'reference', origin => 'shard_a')",
        )
        .unwrap();
    for waits in [
        "SELECT count(*) > 0 FROM shard_lookups() WHERE waits_for LIKE '%row-level security%'",
        "SELECT count(*) > 0 FROM shard_reference_tables() WHERE error LIKE '%row-level security%'",
    ] {
        wait::until_true(&mut master, waits, LIMIT, waits).unwrap();
    }
    by_superusers(&cluster, "ALTER ROLE mover BYPASSRLS");
    let found = "SELECT count(*) = 600 FROM shardmaster.lookup_entry WHERE lookup = 'vals'";
    wait::until_true(&mut master, "all rows", LIMIT, found).unwrap();
    let mut there = cluster.servers[1].superuser(DATABASE).unwrap();
    wait::until_true(&mut there, "all rows", LIMIT, "SELECT count(*) = 3 FROM country").unwrap();
}
