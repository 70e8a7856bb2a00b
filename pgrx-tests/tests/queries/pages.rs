//! Pages of rows of all shards: each row is on one page, in order.

use postgres::Client;
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{self, by_owner, by_superuser};
use shardmaster_tests::queries::{analyst, error, stage};

const STATEMENT: &str = "SELECT tenant, id, code, val FROM items";

/// Reads all pages, one after the other.
fn pages(client: &mut Client, order: &str, size: i32) -> Vec<String> {
    let call = "SELECT j::text FROM shard_query_page($1, $2::text::text[], $3, $4::text::jsonb) WITH ORDINALITY AS t (j, n) ORDER BY n";
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().cloned();
        let rows = client.query(call, &[&STATEMENT, &order, &size, &after]).unwrap();
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        assert!(all.len() < 2000, "pages without an end");
        if rows.len() < usize::try_from(size).unwrap() {
            return all;
        }
    }
}

#[test]
fn each_row_is_on_one_page_and_in_order() {
    let cluster = stage(&[]);
    by_owner(
        &cluster,
        1,
        "INSERT INTO items SELECT CASE i % 2 WHEN 0 THEN 'Über' ELSE 'a b' END, i, i::text, i FROM generate_series(1, 257) i",
    );
    let mut client = analyst(&cluster);
    client.batch_execute("SET DateStyle = 'German'; SET enable_nestloop = off").unwrap();
    // This is the order that all rows in one table would have.
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_login_set('postgres', 'reader');
             CREATE TABLE together AS SELECT * FROM shard_query('SELECT tenant, id, code, val FROM items') AS t (tenant text, id int, code int, val text)",
        )
        .unwrap();
    for (order, by, size) in [
        (
            r#"{code DESC,"tenant COLLATE \"C\" DESC",id DESC}"#,
            r#"code DESC, tenant COLLATE "C" DESC, id DESC"#,
            50,
        ),
        (r#"{code,"tenant COLLATE \"C\"",id}"#, r#"code, tenant COLLATE "C", id"#, 7),
        (r#"{"tenant collate \"C\" desc",code,"id desc"}"#, r#"tenant COLLATE "C" DESC, code, id DESC"#, 100),
        (r#"{id,"tenant COLLATE \"C\" ASC"}"#, r#"id, tenant COLLATE "C""#, 857),
    ]
    .into_iter()
    .take(at_most(1))
    {
        let all = pages(&mut client, order, size);
        let query = format!(
            "SELECT to_jsonb(t)::text FROM (SELECT tenant, id, code, val FROM together) t ORDER BY {by}"
        );
        let expected: Vec<String> = master.query(&query, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(expected.len(), 857);
        assert_eq!(all, expected, "{order}");
    }
}

#[test]
fn what_would_lose_a_row_is_refused() {
    let cluster = stage(&[]);
    by_superuser(
        &cluster,
        1,
        "ALTER TABLE items ALTER code TYPE bigint; INSERT INTO items VALUES ('there', 1, '1', 1)",
    );
    let mut client = analyst(&cluster);
    let call = |order: &str, more: &str| {
        format!("SELECT * FROM shard_query_page('{STATEMENT}', '{order}', 10{more})")
    };
    let mut refused = |order: &str, more: &str| error(&mut client, &call(order, more));
    let (state, message) = refused("{tenant}", "");
    assert_eq!(
        (state.as_str(), message.contains("column \"tenant\" of shard")),
        ("42804", true),
        "{message}"
    );
    assert_eq!(refused("{code}", "").0, "42804", "types differ");
    assert_eq!(refused(r#"{"id collate \"C\""}"#, "").0, "42804");
    let (state, message) = refused(r#"{"tenant collate \"C\""}"#, "");
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("22023", "the order does not distinguish the last row of the page from the next one")
    );
    assert_eq!(refused("{id}", r#", '{"code": 1}'"#).0, "22023");
    assert_eq!(refused("{nothing}", "").0, "42703");
    assert_eq!(refused("{}", "").0, "22023");
    assert_eq!(refused("{id) OR true --}", "").0, "42703");
    assert_eq!(
        error(&mut client, "SELECT * FROM shard_query_page('SELECT 1 AS a', '{a}', 10001)").0,
        "22023"
    );
    // A number is read with all its digits.
    let row = "SELECT j::text FROM shard_query_page('SELECT n FROM (VALUES (12345678901234567890.5), (12345678901234567890.6)) v (n)', '{n}', 1, '{\"n\": 12345678901234567890.5}', shards => '{shard_a}') AS j";
    assert_eq!(client.query_one(row, &[]).unwrap().get::<_, String>(0), r#"{"n": 12345678901234567890.6}"#);
}

#[test]
fn a_varchar_is_ordered_as_the_text_that_it_is() {
    let cluster = stage(&[]);
    let call = r#"SELECT j ->> 'id' FROM shard_query_page('SELECT id, tenant::varchar AS tenant FROM items', '{id,"tenant COLLATE \"C\""}', 2, '{"id": 7, "tenant": "moves"}') AS j"#;
    let rows = analyst(&cluster).query(call, &[]).unwrap();
    let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, ["7", "8"]);
}

#[test]
#[ignore = "make test-all: pages; make test has queries::limits::memory_is_bounded_whatever_comes"]
fn a_page_takes_no_more_memory_than_it_may() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    let long = ("54000".to_owned(), "the rows of the page are longer than 256 MB".to_owned());
    for call in [
        "shard_query_page('SELECT i, repeat(''x'', 10000000) AS r FROM generate_series(1, 90) i', '{i}', 80, shards => '{shard_a}')",
        // The sort key is repeated.
        r#"shard_query_page('SELECT repeat(md5(i::text), 100000) AS t FROM generate_series(1, 90) i', '{"t COLLATE \"C\""}', 40, shards => '{shard_a}')"#,
    ] {
        assert_eq!(error(&mut client, &format!("SELECT count(*) FROM {call}")), long);
    }
}

/// A name that is no column may be a function of the whole row. It must not read rows that a split has on two shards.
#[test]
fn an_order_by_a_function_reads_past_no_split() {
    let cluster = stage(&[]);
    for server in 0..2 {
        by_superuser(
            &cluster,
            server,
            "CREATE FUNCTION public.seen(record) RETURNS bigint STABLE LANGUAGE plpgsql AS $$BEGIN RETURN (SELECT count(*) FROM public.items); END$$",
        );
    }
    let split = fixture::plan(&cluster);
    fixture::to_pending(&split);
    let (state, message) =
        error(&mut analyst(&cluster), "SELECT * FROM shard_query_page('SELECT 1 AS a', '{seen,a}', 1)");
    assert_eq!((state.as_str(), message.contains("seen")), ("55000", true), "{message}");
}
