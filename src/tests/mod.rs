//! Tests that a single backend runs best, each in a transaction of its own that is rolled back: keys, plans, errors as
//! a caller receives them, the cache of routes.

mod by_index;
mod cache;
mod errors;
mod keys;
mod plans;
mod tokens;
mod version;

use crate::server::sql;
use pgrx::prelude::*;

/// The error of a refused statement; a missing detail or hint is empty.
#[derive(Debug, Default, PartialEq)]
struct Refusal {
    state: String,
    message: String,
    detail: String,
    hint: String,
}

fn run(statement: &str) {
    assert!(Spi::run(statement).is_ok(), "{statement}");
}

/// Returns the text of a query's only value.
fn text(query: &str) -> String {
    sql::read_one(query, &[], |row| row.get::<String>(1)).flatten().unwrap_or_default()
}

/// Returns the error of a statement, whose changes are undone.
fn refused(statement: &str) -> Refusal {
    run(include_str!("refused.sql"));
    let said =
        sql::read_one("SELECT pg_temp.refused($1)", &[statement.into()], |row| row.get::<Vec<String>>(1));
    let Some(Some(said)) = said else { panic!("not refused: {statement}") };
    match <[String; 4]>::try_from(said) {
        Ok([state, message, detail, hint]) => Refusal { state, message, detail, hint },
        Err(said) => panic!("{said:?}"),
    }
}

/// Returns the SQLSTATE and the message.
fn refusal(statement: &str) -> (String, String) {
    let refusal = refused(statement);
    (refusal.state, refusal.message)
}

fn expect(statement: &str, state: &str, message: &str) {
    assert_eq!(refusal(statement), (state.to_owned(), message.to_owned()), "{statement}");
}

/// Creates the shards a and b, and the table `items`, sharded by `tenant` of this type.
fn shards(key_type: &str) {
    run("SELECT shard_add(n, namespace => n) FROM unnest('{a,b}'::text[]) n");
    run(&format!("SELECT shard_table_add('items', 'tenant', key_type => '{key_type}')"));
}
