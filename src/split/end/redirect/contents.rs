//! What a redirect refuses, and of which splits.

use super::{all, count, interval};
use crate::agent::error::Result;
use crate::agent::redirect::Redirect;
use crate::keys::scope::Scope;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;

/// What a database still refuses of what a split has taken away, by its token; None: nothing.
pub fn left_of(connection: &mut Connection, token: &str) -> Result<Option<Scope>> {
    for redirect in all(connection)? {
        if count(connection, &redirect, Some(token))? > 0 {
            return Ok(Some(left(connection, &redirect, token)?.0));
        }
    }
    Ok(None)
}

/// The splits whose entries a redirect has, with their tokens.
pub fn splits(connection: &mut Connection, redirect: &Redirect) -> Result<Vec<(i64, String)>> {
    let rows = connection.run(&format!(
        "SELECT DISTINCT split_id, token FROM {} ORDER BY split_id, token",
        redirect.table()
    ))?;
    let splits = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(id), Some(token)] => id.parse().ok().map(|id| (id, token.clone())),
        _ => None,
    });
    Ok(splits.collect())
}

/// What a split has taken away, and to where.
pub fn left(connection: &mut Connection, redirect: &Redirect, token: &str) -> Result<(Scope, String)> {
    let table = redirect.table();
    let by_token = [Some(token)];
    let shard = connection.query(&format!("SELECT min(shard) FROM {table} WHERE token = $1"), &by_token)?;
    let shard = shard.scalar().unwrap_or_default().to_owned();
    let scope = match redirect.entries {
        Strategy::Range { of } => {
            let query = format!("SELECT lower::text, upper::text FROM {table} WHERE token = $1");
            let rows = connection.query(&query, &by_token)?;
            Scope::Ranges { of, ranges: rows.rows.into_iter().filter_map(interval).collect() }
        }
        Strategy::Directory => Scope::Keys(names(connection, &table, &by_token)?),
        Strategy::Hash { of, buckets: count } => {
            Scope::Buckets { of, count, buckets: names(connection, &table, &by_token)? }
        }
    };
    Ok((scope, shard))
}

fn names(connection: &mut Connection, table: &str, by_token: &[Option<&str>]) -> Result<Vec<String>> {
    let rows = connection.query(&format!("SELECT key::text FROM {table} WHERE token = $1"), by_token)?;
    Ok(rows.rows.into_iter().flatten().flatten().collect())
}
