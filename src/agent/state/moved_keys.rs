//! The tables `left_<redirect>`, one for each redirect: which keys, buckets or ranges have left, their new shard, and
//! the split that moved them.

use crate::agent::error::Result;
use crate::agent::shape::Column;
use crate::agent::state::key_list::{self, KeyList};
use crate::agent::state::{LONGEST, MANY, or_gone, require_few, scope};
use crate::agent::types::TypeFamily;
use crate::catalog::redirect::RedirectOwner;
use crate::clean;
use crate::keys::interval::Interval;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::quote::{array_literal, literal};
use crate::remote::{Connection, number};

/// What is known of each entry.
pub struct MovedFacts<'a> {
    pub shard: &'a str,
    pub version: i64,
    pub split: i64,
    pub token: &'a str,
}

impl MovedFacts<'_> {
    /// Returns the values in the order of the columns.
    fn list(&self) -> String {
        format!("{}, {}, {}, {}", literal(self.shard), self.version, self.split, literal(self.token))
    }
}

/// Returns the type of the table's keys: numbers, texts or uuids, whatever type the tables of the keyspace have.
fn key_type(column: &Column) -> &'static str {
    column.family().map_or("pg_catalog.text", |family: TypeFamily| family.compared_as())
}

pub fn exists(connection: &mut Connection, redirect: &KeyList) -> Result<bool> {
    let rows = connection.query("SELECT to_regclass($1)", &[Some(&redirect.table())])?;
    Ok(rows.scalar().is_some())
}

/// Locks the table: no key leaves or returns before the transaction ends, while writers only read. A session that only
/// writes look-ups has the lock of `schema::bootstrap` and does not need this one.
pub fn lock(connection: &mut Connection, redirect: &KeyList) -> Result<()> {
    connection.run(&format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", redirect.table()))?;
    Ok(())
}

/// Counts entries, of one split or of all.
pub fn count(connection: &mut Connection, redirect: &KeyList, of: WhoseEntries<'_>) -> Result<i64> {
    let query = format!("SELECT count(*) FROM {} WHERE {}", redirect.table(), of.condition());
    // Another session may have ended the redirect since it was listed.
    let rows = or_gone(connection, &query, &[])?;
    if rows.rows.is_empty() {
        return Ok(0);
    }
    Ok(number::count(connection.shard(), "the number of keys that have left", rows.scalar())?)
}

/// Returns the routing version with which the keys of a split, or of its reverse split, have left. Returns None if
/// they are not here.
pub fn version(connection: &mut Connection, redirect: &KeyList, token: &str) -> Result<Option<i64>> {
    let query = format!("SELECT max(version) FROM {} WHERE token = $1", redirect.table());
    let rows = or_gone(connection, &query, &[Some(token)])?;
    Ok(rows.scalar().and_then(|version| version.parse().ok()))
}

/// Returns the highest number of a split whose entries are here.
pub fn highest_split(connection: &mut Connection, redirect: &KeyList) -> Result<Option<i64>> {
    let rows = or_gone(connection, &format!("SELECT max(split_id) FROM {}", redirect.table()), &[])?;
    Ok(rows.scalar().and_then(|id| id.parse().ok()))
}

/// Returns the splits whose entries are here, with their tokens. An overlong token is truncated.
pub fn splits(connection: &mut Connection, redirect: &KeyList) -> Result<Vec<(i64, String)>> {
    let query = format!(
        "SELECT DISTINCT split_id, left(token, {LONGEST}) FROM {} ORDER BY 1, 2 LIMIT {MANY} + 1",
        redirect.table()
    );
    let rows = or_gone(connection, &query, &[])?;
    require_few(connection, rows.rows.len())?;
    let splits = rows.pairs().filter_map(|(id, token)| Some((id.parse().ok()?, clean::message(&token))));
    Ok(splits.collect())
}

/// A decision by which entries have left.
pub struct MovedDecision {
    pub split: i64,
    pub token: String,
    pub version: i64,
    pub to_shard: String,
}

/// Returns the decisions by which the entries have left.
pub fn decisions(connection: &mut Connection, redirect: &KeyList) -> Result<Vec<MovedDecision>> {
    let query = format!(
        "SELECT split_id, left(token, {LONGEST}), max(version), left(max(shard), {LONGEST}) FROM {}
          GROUP BY split_id, token ORDER BY 3 DESC LIMIT {MANY}",
        redirect.table()
    );
    let rows = or_gone(connection, &query, &[])?;
    let decisions = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(id), Some(token), Some(version), Some(shard)] => Some(MovedDecision {
            split: id.parse().ok()?,
            token: clean::message(token),
            version: version.parse().ok()?,
            to_shard: clean::message(shard),
        }),
        _ => None,
    });
    Ok(decisions.collect())
}

/// Returns the entries that a split has moved away and that the database still refuses. Returns None if there are
/// none.
pub fn all_of(connection: &mut Connection, by: RedirectOwner<'_>) -> Result<Option<Scope>> {
    for redirect in key_list::redirects(connection)? {
        if count(connection, &redirect, WhoseEntries::Split(by))? > 0 {
            return Ok(Some(of_split(connection, &redirect, by)?.0));
        }
    }
    Ok(None)
}

/// Returns the entries that a split has moved away, and their new shard.
pub fn of_split(
    connection: &mut Connection,
    redirect: &KeyList,
    by: RedirectOwner<'_>,
) -> Result<(Scope, String)> {
    let own = WhoseEntries::Split(by).condition();
    let query = format!("SELECT left(min(shard), {LONGEST}) FROM {} WHERE {own}", redirect.table());
    let shard = clean::message(connection.run(&query)?.scalar().unwrap_or_default());
    Ok((scope::entries(connection, &redirect.table(), redirect.entries, &own)?, shard))
}

/// Returns all keys or buckets that have left.
pub fn names(connection: &mut Connection, redirect: &KeyList) -> Result<Vec<String>> {
    scope::names(connection, &redirect.table(), "true")
}

/// Returns all ranges that have left, in their order.
pub fn ranges(connection: &mut Connection, redirect: &KeyList) -> Result<Vec<Interval>> {
    scope::ranges(connection, &redirect.table(), "true")
}

/// Returns a number for each key for which a condition holds, by an expression over `key`.
pub fn numbers(
    connection: &mut Connection,
    redirect: &KeyList,
    expression: &str,
    condition: &str,
) -> Result<Vec<usize>> {
    let table = redirect.table();
    let rows = connection.run(&format!("SELECT {expression} FROM {table} WHERE {condition}"))?;
    Ok(rows.rows.iter().flatten().flatten().map(|number| number.parse().unwrap_or(0)).collect())
}

/// Returns keys as they are compared: values of char(n) without trailing blanks.
pub(super) fn comparable(keys: &[String], key_type: Option<KeyType>) -> Vec<String> {
    match key_type {
        Some(KeyType::Char) => keys.iter().map(|key| key.trim_end_matches(' ').to_owned()).collect(),
        Some(
            KeyType::SmallInt
            | KeyType::Integer
            | KeyType::BigInt
            | KeyType::Numeric
            | KeyType::Text
            | KeyType::VarChar
            | KeyType::Uuid,
        )
        | None => keys.to_vec(),
    }
}

/// Enters a scope, replacing what was known of it, in a transaction.
pub fn enter(
    connection: &mut Connection,
    redirect: &KeyList,
    scope: &Scope,
    keys_are: Option<KeyType>,
    column: &Column,
    facts: &MovedFacts<'_>,
) -> Result<()> {
    let statement = match scope {
        Scope::Keys(keys) => insert_named(redirect, &comparable(keys, keys_are), key_type(column), facts),
        Scope::Buckets { buckets, .. } => insert_named(redirect, buckets, "int4", facts),
        Scope::Ranges { of, ranges } => {
            cut_out(connection, redirect, *of, ranges, "true")?;
            insert_ranges(redirect, ranges, *of, &format!("{}, clock_timestamp()", facts.list()))
        }
    };
    connection.run(&format!("{statement}; ANALYZE {}", redirect.table()))?;
    Ok(())
}

fn insert_named(redirect: &KeyList, names: &[String], key_type: &str, facts: &MovedFacts<'_>) -> String {
    format!(
        "INSERT INTO {} (key, shard, version, split_id, token)
         SELECT key, {} FROM pg_catalog.unnest({}::{key_type}[]) key
         ON CONFLICT (key) DO UPDATE SET shard = EXCLUDED.shard, version = EXCLUDED.version,
                split_id = EXCLUDED.split_id, token = EXCLUDED.token, since = EXCLUDED.since
          WHERE (left_{id}.token, left_{id}.split_id) <> (EXCLUDED.token, EXCLUDED.split_id)",
        redirect.table(),
        facts.list(),
        array_literal(names),
        id = redirect.id
    )
}

/// Returns the statement that enters ranges. The facts are the last columns.
fn insert_ranges(redirect: &KeyList, ranges: &[Interval], of: Ordered, facts: &str) -> String {
    let bound = |bound: &Option<String>| {
        bound
            .as_ref()
            .map_or(format!("NULL::{}", of.as_str()), |key| format!("{}::{}", literal(key), of.as_str()))
    };
    let rows: Vec<String> = ranges
        .iter()
        .map(|range| format!("({}, {}, {facts})", bound(&range.lower), bound(&range.upper)))
        .collect();
    format!(
        "INSERT INTO {} (lower, upper, shard, version, split_id, token, since) VALUES {}",
        redirect.table(),
        rows.join(", ")
    )
}

/// Whose entries are removed.
#[derive(Clone, Copy)]
pub enum WhoseEntries<'a> {
    Anybody,
    Split(RedirectOwner<'a>),
}

impl WhoseEntries<'_> {
    fn condition(self) -> String {
        match self {
            WhoseEntries::Anybody => "true".to_owned(),
            WhoseEntries::Split(RedirectOwner { split, token }) => {
                format!("token = {} AND split_id = {split}", literal(token))
            }
        }
    }
}

/// Removes a scope, in a transaction.
pub fn take_out(
    connection: &mut Connection,
    redirect: &KeyList,
    scope: &Scope,
    keys_are: Option<KeyType>,
    of: WhoseEntries<'_>,
) -> Result<()> {
    let (table, also) = (redirect.table(), of.condition());
    match scope {
        // The keys are cast to the type of the table's own column.
        Scope::Keys(keys) => {
            let list = array_literal(&comparable(keys, keys_are));
            connection.run(&format!(
                "DELETE FROM {table} WHERE key IN (SELECT (pg_catalog.jsonb_populate_record(NULL::{table},
                        pg_catalog.jsonb_build_object('key', name))).key FROM pg_catalog.unnest({list}::text[]) name) AND {also}"
            ))?;
        }
        Scope::Buckets { buckets, .. } => {
            let list = array_literal(buckets);
            connection.run(&format!("DELETE FROM {table} WHERE key = ANY ({list}::int4[]) AND {also}"))?;
        }
        Scope::Ranges { of, ranges } => cut_out(connection, redirect, *of, ranges, &also)?,
    }
    Ok(())
}

/// Removes all that a split has entered, in a transaction.
pub fn take_out_all(connection: &mut Connection, redirect: &KeyList, by: RedirectOwner<'_>) -> Result<()> {
    connection.run(&format!(
        "DELETE FROM {} WHERE {}",
        redirect.table(),
        WhoseEntries::Split(by).condition()
    ))?;
    Ok(())
}

/// Cuts ranges out of the rows that a condition selects; the parts of these outside stay.
fn cut_out(
    connection: &mut Connection,
    redirect: &KeyList,
    of: Ordered,
    ranges: &[Interval],
    condition: &str,
) -> Result<()> {
    lock(connection, redirect)?;
    let table = redirect.table();
    let rows = connection.run(&format!(
        "SELECT ctid, format('%L, %s, %s, %L, %L::timestamptz', shard, version, split_id, token, since),
                lower::text, upper::text FROM {table} WHERE {condition}"
    ))?;
    for row in rows.rows {
        let Ok([Some(row_id), Some(facts), lower, upper]) = <[_; 4]>::try_from(row) else { continue };
        let Some(rest) = (Interval { lower, upper }).without_all(ranges, of) else { continue };
        connection.run(&format!("DELETE FROM {table} WHERE ctid = {}", literal(&row_id)))?;
        if !rest.is_empty() {
            connection.run(&insert_ranges(redirect, &rest, of, &facts))?;
        }
    }
    Ok(())
}

/// Returns statements that lock the table and fail with 55006 unless it is empty.
pub fn require_empty(redirect: &KeyList) -> String {
    let table = redirect.table();
    format!(
        "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;
         DO $$ BEGIN
             IF EXISTS (SELECT 1 FROM {table}) THEN
                 RAISE EXCEPTION 'keys have left meanwhile' USING ERRCODE = '55006';
             END IF;
         END $$; "
    )
}
