//! Statements to shards about rows, as texts.

use super::facts::ForeignKey;
use crate::misplaced::table_pair::MovedTable;
use crate::remote::quote::{array_literal, literal};

/// Returns a query for the first of the keys that the column's type writes differently: rows of another key could be
/// taken for its rows.
pub fn other_spelling(pair: &MovedTable, keys: &[String]) -> String {
    let (list, own) = (array_literal(&pair.keys_it_has(keys)), pair.own_form("k.key"));
    format!(
        "SELECT k.key FROM pg_catalog.unnest({list}::pg_catalog.text[]) AS k (key)
          WHERE {own} OPERATOR(pg_catalog.<>) k.key LIMIT 1"
    )
}

/// Returns a query that fails if the column's type has no value for one of the keys.
pub fn try_keys(pair: &MovedTable, keys: &[String]) -> String {
    format!("SELECT FROM {} AS r WHERE {} LIMIT 0", pair.here, pair.is_of(keys, "r"))
}

/// Returns a COPY of rows of the keys, as they are.
pub fn read(pair: &MovedTable, keys: &[String]) -> String {
    let (columns, table, is_of) = (pair.columns("r"), &pair.here, pair.is_of(keys, "r"));
    format!("COPY (SELECT {columns} FROM {table} AS r WHERE {is_of}) TO STDOUT")
}

/// Rows of a list. Places are hints: a row that is there by then has one of the keys, or is left alone.
pub struct Chosen {
    /// The keys of the rows.
    pub keys: Vec<String>,
    /// The partitions that they are in, by their numbers.
    pub parts: Vec<String>,
    pub places: Vec<String>,
}

/// Returns a statement that makes the shard keep the places of all rows of the keys, beyond the end of the
/// transaction, each with its key.
pub fn list(pair: &MovedTable, keys: &[String]) -> String {
    let (table, key, is_of) = (&pair.here, pair.key_of("r"), pair.is_of(keys, "r"));
    format!(
        "BEGIN READ ONLY; DECLARE shardmaster_misplaced NO SCROLL CURSOR WITH HOLD FOR
           SELECT r.tableoid, r.ctid, {key} FROM {table} AS r WHERE {is_of}; COMMIT"
    )
}

pub fn next_listed(most: u32) -> String {
    format!("FETCH FORWARD {most} FROM shardmaster_misplaced")
}

pub const END_LIST: &str = "CLOSE shardmaster_misplaced";

/// Returns a statement that deletes them, or those of them that were chosen. A row that is changed meanwhile is
/// deleted as it is by then, or not at all: a scan by places of older minor versions takes the changed row for the
/// chosen one, so its key is checked again, in a way that no index serves.
pub fn delete(pair: &MovedTable, keys: &[String], chosen: Option<&Chosen>) -> String {
    let (table, is_of) = (&pair.here, pair.is_of(keys, "r"));
    let Some(chosen) = chosen else { return format!("DELETE FROM {table} AS r WHERE {is_of}") };
    format!(
        "DELETE FROM {table} AS r
          WHERE r.ctid OPERATOR(pg_catalog.=) ANY ({}::pg_catalog.tid[])
            AND r.tableoid OPERATOR(pg_catalog.=) ANY ({}::pg_catalog.oid[]) AND CASE WHEN {is_of} THEN true END",
        array_literal(&chosen.places),
        array_literal(&chosen.parts)
    )
}

/// Returns a COPY that deletes them and returns what it has deleted.
pub fn take(pair: &MovedTable, keys: &[String], chosen: Option<&Chosen>) -> String {
    format!("COPY ({} RETURNING {}) TO STDOUT", delete(pair, keys, chosen), pair.columns("r"))
}

/// Returns a statement that deletes any one row of a key.
pub fn delete_one(pair: &MovedTable, key: &str) -> String {
    let (table, is_of) = (&pair.here, pair.is_of(&[key.to_owned()], "c"));
    format!(
        "DELETE FROM {table} AS r
          USING (SELECT c.tableoid AS part, c.ctid AS place FROM {table} AS c WHERE {is_of} LIMIT 1) AS one
          WHERE r.ctid OPERATOR(pg_catalog.=) one.place AND r.tableoid OPERATOR(pg_catalog.=) one.part"
    )
}

/// Settings that make rows of a batch be found one by one, by their places or by their keys, until the end of the
/// transaction: a plan that reads a whole table for the few rows of a batch would do so for each batch. A plan type
/// without an alternative must not be disabled: its cost would make all others equal.
pub const BY_PLACES: &str = "SET LOCAL enable_seqscan = off";
pub const BY_KEYS: &str =
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off";

/// Returns a query whether there are any.
pub fn exists(pair: &MovedTable, keys: &[String]) -> String {
    format!("SELECT EXISTS (SELECT FROM {} AS r WHERE {})", pair.here, pair.is_of(keys, "r"))
}

/// Returns a statement for the table where rows arrive at the right shard.
pub fn make_stage(pair: &MovedTable) -> String {
    let (stage, columns, table) = (&pair.stage, pair.columns("t"), &pair.there);
    format!(
        "CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {table} AS t WHERE false"
    )
}

pub fn fill_stage(pair: &MovedTable) -> String {
    format!("COPY pg_temp.{} ({}) FROM STDIN", pair.stage, pair.columns(""))
}

/// Returns a query for how many of them have none of the keys, however they were asked for, and the key of one.
/// Generated columns are not known yet.
pub fn strange(pair: &MovedTable, keys: &[String]) -> Option<String> {
    let is_of = pair.is_of(keys, "s");
    (!pair.is_shard_by_generated()).then(|| one_of_staged(pair, &format!("WHERE ({is_of}) IS NOT TRUE")))
}

/// Returns a query for the key of one of the rows in the stage, and how many there are.
fn one_of_staged(pair: &MovedTable, which: &str) -> String {
    format!(
        "SELECT pg_catalog.concat_ws(', ', {}), pg_catalog.count(*) OVER ()
           FROM pg_temp.{} AS s {which} ORDER BY 1 LIMIT 1",
        pair.key("s"),
        pair.stage
    )
}

/// Returns a query for the key of one of the rows in the stage that have no row `t` there or one that is otherwise
/// odd, and how many there are.
fn one_without_row(pair: &MovedTable, or_odd: &str) -> String {
    let (there, same_key) = (&pair.there, &pair.same_key);
    one_of_staged(pair, &format!("LEFT JOIN {there} AS t ON {same_key} WHERE t.tableoid IS NULL OR {or_odd}"))
}

/// Returns a statement for the table at the wrong shard with the keys of rows that have come to the right one.
pub fn make_arrived(pair: &MovedTable) -> String {
    let (stage, key, table) = (pair.arrived(), pair.key("t"), &pair.here);
    format!(
        "CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS SELECT {key} FROM {table} AS t WHERE false"
    )
}

/// Returns a query for rows that a transaction has left at the right shard.
pub fn arrived(pair: &MovedTable, xid: &str) -> String {
    let (key, table, xid) = (pair.key("t"), &pair.there, literal(xid));
    format!(
        "COPY (SELECT {key} FROM {table} AS t WHERE t.xmin OPERATOR(pg_catalog.=) {xid}::pg_catalog.xid8::pg_catalog.xid) TO STDOUT"
    )
}

pub fn fill_arrived(pair: &MovedTable) -> String {
    format!("COPY pg_temp.{} ({}) FROM STDIN", pair.arrived(), pair.key(""))
}

pub fn count_arrived(pair: &MovedTable) -> String {
    format!("SELECT pg_catalog.count(*) FROM pg_temp.{} AS s", pair.arrived())
}

pub fn take_arrived(pair: &MovedTable, keys: &[String]) -> String {
    let (table, stage, same_key) = (&pair.here, pair.arrived(), &pair.same_key);
    let (is_of, columns) = (pair.is_of(keys, "t"), pair.columns("t"));
    format!(
        "COPY (DELETE FROM {table} AS t USING pg_temp.{stage} AS s WHERE {same_key} AND CASE WHEN {is_of} THEN true END
               RETURNING {columns}) TO STDOUT"
    )
}

pub fn is_staged(pair: &MovedTable) -> String {
    format!("SELECT EXISTS (SELECT FROM pg_temp.{} AS s)", pair.stage)
}

/// Returns a statement that removes those that exist there already, unchanged.
pub fn drop_equal(pair: &MovedTable, keys: &[String]) -> String {
    format!(
        "DELETE FROM pg_temp.{} AS s USING {} AS t WHERE {} AND NOT {}",
        pair.stage,
        pair.there,
        pair.same_key,
        differ(pair, keys)
    )
}

/// Returns a query for how many of the others exist there with other content, and the key of one.
pub fn conflicts(pair: &MovedTable) -> String {
    one_of_staged(pair, &format!("JOIN {} AS t ON {}", pair.there, pair.same_key))
}

/// Returns a query for how many of them do not exist there at all, as rows of the same key, and the key of one.
pub fn absent(pair: &MovedTable, keys: &[String]) -> String {
    let (is_of, same_shard_by) = (pair.is_of(keys, "t"), pair.has_same_shard_by());
    one_without_row(pair, &format!("CASE WHEN {is_of} AND {same_shard_by} THEN false ELSE true END"))
}

/// Returns a query for how many of them do not exist there by their primary key, whatever key the row there has.
pub fn missing_keys(pair: &MovedTable) -> String {
    one_without_row(pair, "false")
}

/// Returns a COPY of the primary keys of those that are left in the stage, and have a row there.
pub fn conflicting(pair: &MovedTable) -> String {
    let (key, stage, there, same_key) = (pair.key("s"), &pair.stage, &pair.there, &pair.same_key);
    format!("COPY (SELECT {key} FROM pg_temp.{stage} AS s JOIN {there} AS t ON {same_key}) TO STDOUT")
}

pub fn count_stage(pair: &MovedTable) -> String {
    format!("SELECT pg_catalog.count(*) FROM pg_temp.{} AS s", pair.stage)
}

pub fn empty_stage(pair: &MovedTable) -> String {
    format!("DELETE FROM pg_temp.{}", pair.stage)
}

/// Returns a query whether rows `c` that refer to rows `p` would be deleted or changed with those whose keys have
/// arrived.
pub fn is_followed(pair: &MovedTable, key: &ForeignKey) -> String {
    let (arrived, same_key) = (pair.arrived(), &pair.same_key);
    format!(
        "SELECT EXISTS (SELECT FROM {} AS c JOIN {} AS p ON {}
                         WHERE EXISTS (SELECT FROM {} AS t JOIN pg_temp.{arrived} AS s ON {same_key}
                                        WHERE t.ctid OPERATOR(pg_catalog.=) p.ctid AND t.tableoid OPERATOR(pg_catalog.=) p.tableoid))",
        key.from,
        key.to,
        key.refers(),
        key.to
    )
}

/// Returns a statement that inserts them with their own numbers, whatever an identity column would give them.
pub fn insert(pair: &MovedTable) -> String {
    format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM pg_temp.{} AS s",
        pair.there,
        pair.columns(""),
        pair.columns("s"),
        pair.stage
    )
}

/// Returns a query for how many do not exist there unchanged, and the key of one.
pub fn missing(pair: &MovedTable, keys: &[String]) -> String {
    one_without_row(pair, &differ(pair, keys))
}

/// Returns a condition that rows differ: by their bytes, or because a generated column has given the row there another
/// key. If the planner saw that condition, it would take the rows there for few, and read them all for each of the
/// others.
fn differ(pair: &MovedTable, keys: &[String]) -> String {
    let (s, t, is_of) = (pair.columns("s"), pair.columns("t"), pair.is_of(keys, "t"));
    format!("(pg_catalog.record_image_ne(ROW({s}), ROW({t})) OR CASE WHEN {is_of} THEN false ELSE true END)")
}
