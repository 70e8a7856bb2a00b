//! Values pass through a query unchanged, whatever the caller's settings.

use postgres::{Client, SimpleQueryMessage};
use shardmaster_tests::cluster::DATABASE;
use shardmaster_tests::fixture::by_superuser;
use shardmaster_tests::queries::{analyst, stage};
use shardmaster_tests::zoo::values::BUILTIN;
use std::fmt::Write;

/// Settings for the input and output of texts, each with an unusual value.
const ODD: &str = "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = -15; SET bytea_output = 'escape';
    SET TimeZone = 'America/St_Johns'; SET array_nulls = off; SET xmloption = document; SET standard_conforming_strings = off;
    SET backslash_quote = off; SET quote_all_identifiers = on";

/// Returns a table for each type of the server and its array type, with values that are hard to represent.
fn tables() -> (String, Vec<(String, String)>) {
    let mut statements = String::new();
    let mut tables = Vec::new();
    for (number, (type_name, values)) in BUILTIN.iter().enumerate() {
        let table = format!("zoo_{number}");
        write!(statements, "CREATE TABLE {table} (id int, v {type_name}, a {type_name}[]); ").unwrap();
        let all: Vec<String> =
            values.iter().map(|value| format!("'{}'::{type_name}", value.replace('\'', "''"))).collect();
        for (id, value) in all.iter().enumerate() {
            let array = format!("ARRAY[{}, NULL]::{type_name}[]", all.join(", "));
            write!(statements, "INSERT INTO {table} VALUES ({id}, {value}, {array}); ").unwrap();
        }
        write!(statements, "INSERT INTO {table} VALUES (99, NULL, NULL); ").unwrap();
        tables.push((table, (*type_name).to_owned()));
    }
    (statements, tables)
}

/// Returns the texts that a client gets.
fn texts(client: &mut Client, table: &str) -> Vec<String> {
    let rows = client.simple_query(&format!("SELECT id, v, a FROM {table} ORDER BY id")).unwrap();
    let text = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => Some(format!("{:?} {:?} {:?}", row.get(0), row.get(1), row.get(2))),
        _ => None,
    };
    rows.iter().filter_map(text).collect()
}

/// As JSON, each row is an object, whatever its columns are called, and each value has its JSON form from here.
#[test]
fn json_is_that_of_the_row() {
    let cluster = stage(&[]);
    let mut client = analyst(&cluster);
    for row in [
        "1 AS answer",
        "1 AS a, 2 AS a",
        "'NaN'::float8 AS f, 'infinity'::date AS d, '-Infinity'::numeric AS n, 1e300 AS big, 0.10 AS x",
        "json '{\"a\": 1, \"a\": [2, null]}' AS j, jsonb '{\"b\": \"\\u00e4\"}' AS b, ROW(1, 'x') AS r, ARRAY[[1, NULL]] AS i",
        "E'\\t\\x01\"\\\\' AS t, ''::text AS e, NULL::text AS n, true AS y, timestamptz '2026-01-01 12:00+00' AS at",
    ] {
        let come: String = client
            .query_one("SELECT string_agg(j::text, '|') FROM shard_query_json('SELECT ' || $1, shards => '{shard_a}') AS j", &[&row])
            .unwrap()
            .get(0);
        let here: String = client
            .query_one(&format!("SELECT to_jsonb(q.*)::text FROM (SELECT {row}) AS q"), &[])
            .unwrap()
            .get(0);
        assert_eq!(come, here, "{row}");
    }
}

#[test]
#[ignore = "make test-all: each type; make test has queries::imports::conditions_find_what_they_find_here"]
fn values_come_as_they_are() {
    let cluster = stage(&[]);
    let (statements, tables) = tables();
    by_superuser(
        &cluster,
        0,
        &format!("{statements}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"),
    );
    // The master itself has the expected result.
    let mut master = cluster.superuser().unwrap();
    let there = statements.replace("zoo_", "there_");
    master
        .batch_execute(&format!("GRANT CREATE ON SCHEMA public TO analyst; {there}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO analyst"))
        .unwrap();
    let mut client = analyst(&cluster);
    let mut wrong = Vec::new();
    for (table, type_name) in &tables {
        client.batch_execute(ODD).unwrap();
        let come = format!(
            "CREATE TABLE come_{table} AS SELECT * FROM shard_query('SELECT id, v, a FROM {table}', shards => '{{shard_a}}')
                AS t (id int, v {type_name}, a {type_name}[])"
        );
        if let Err(error) = client.batch_execute(&come) {
            wrong.push(format!("{type_name}: {}", error.as_db_error().map_or("?", |error| error.message())));
            continue;
        }
        let mut check = cluster.master.connect(DATABASE, "analyst").unwrap();
        let come = texts(&mut check, &format!("come_{table}"));
        let there = texts(&mut check, &table.replace("zoo_", "there_"));
        if come != there || come.len() < 2 {
            wrong.push(format!("{type_name}: {come:?} for {there:?}"));
        }
    }
    assert!(tables.len() > 20);
    assert_eq!(wrong, Vec::<String>::new());
}
