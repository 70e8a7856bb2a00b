//! This database and this extension, as the server knows them.

use crate::server::sql;
use crate::server::txn::in_one;
use pgrx::error;
use pgrx::pg_sys::Oid;

/// Returns the owner of the extension, which is the mover's role in this very database. Reads in the caller's
/// transaction, or in one of its own if there is none.
pub fn owner() -> String {
    let query = "SELECT r.rolname::text FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner
                  WHERE e.extname = 'shardmaster'";
    in_one(|| sql::read_one(query, &[], |row| row.value(1)).unwrap_or_default())
}

/// Returns the number of the extension's owner. The caller is in a transaction.
pub fn owner_id() -> Oid {
    let query =
        "SELECT extowner FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'shardmaster'";
    sql::read_one(query, &[], |row| row.value(1))
        .unwrap_or_else(|| error!("extension \"shardmaster\" does not exist"))
}

/// Whether this database has a schema of this name.
pub fn has_schema(schema: &str) -> bool {
    let query = "SELECT true FROM pg_catalog.pg_namespace WHERE nspname = $1";
    sql::exists(query, &[schema.into()])
}

/// Whether the catalog has a table: the library may be newer than the catalog.
pub fn has_table(table: &str) -> bool {
    let query = "SELECT true WHERE pg_catalog.to_regclass($1) IS NOT NULL";
    sql::read_one_again(query, &[format!("shardmaster.{table}").into()], |_| ()).is_some()
}

/// Whether a table of the catalog has a column: the library may be newer than the catalog.
pub fn has_column(table: &str, column: &str) -> bool {
    let query = "SELECT true FROM pg_attribute
                  WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped";
    sql::exists(query, &[format!("shardmaster.{table}").into(), column.into()])
}

/// SQL query for a relation in a schema, in any database: its kind in words, empty for a table, and whether it has a
/// column. If $3 is NULL, columns do not matter.
pub const RELATION: &str = "SELECT CASE c.relkind WHEN 'r' THEN '' WHEN 'p' THEN '' WHEN 'v' THEN 'a view'
                WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' WHEN 'S' THEN 'a sequence'
                ELSE 'no table' END,
       ($3::text IS NULL OR EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
                                     WHERE a.attrelid = c.oid AND a.attname = $3::text
                                       AND a.attnum > 0 AND NOT a.attisdropped))::text
  FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid
 WHERE n.nspname = $1::text AND c.relname = $2::text";

/// Reads a relation of this database: its kind in words, empty for a table, and whether it has the column.
pub fn relation(schema: &str, name: &str, column: Option<&str>) -> Option<(String, String)> {
    sql::read_one(RELATION, &[schema.into(), name.into(), column.into()], |row| (row.value(1), row.value(2)))
}
