//! Comparison of both sides of a table at once, one range of its key after the other: each server sums the checksums
//! of its rows there, and only if these differ are the rows compared.
//!
//! Invariant: the ranges are (-, a], (a, b], .., (z, +), with bounds that the source has named, and behind its last
//! row the target. On the source each row is in one of them. On the target, whose order may be another one, it is in
//! at least one: it lies behind the beginning and before the end, so there is a range at whose beginning it lies
//! behind the bound and at whose end it does not. So where each range has the same rows on both sides, the tables
//! have; an order that differs shows as a difference, and rows are compared.

use super::position::VerifyPosition;
use super::whole;
use crate::agent::error::Result;
use crate::agent::shape::TableShape;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, ident, literal};
use crate::split::engine::scope_size;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;

/// The number of keys of the first range, its bytes if rows are wide, and the numbers of keys of the smallest and of
/// the largest range.
const FIRST_KEYS: i64 = 50_000;
const FIRST_BYTES: i64 = 32 << 20;
pub const LEAST_KEYS: i64 = 2_000;
pub const MOST_KEYS: i64 = 1 << 22;
/// The least correlation between the orders of the key and of the blocks, if a table is not in memory: a range then
/// reads each of its blocks once.
const LEAST_CORRELATION: f64 = 0.9;
/// How many times bigger the target's table may be than the source's.
const MOST_MORE: i64 = 2;
/// Query for the order of its texts.
const ORDER: &str = include_str!("../../../sql/agent/order.sql");
/// Types whose values one server reads as another has written them.
const TYPES: [&str; 9] = [
    "smallint",
    "integer",
    "bigint",
    "uuid",
    "text",
    "character varying",
    "date",
    "timestamp without time zone",
    "timestamp with time zone",
];
/// Settings that make an index of the key find a range, whatever statistics show. The next constant restores the
/// session's settings.
pub const BY_INDEX: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;";
pub const AS_BEFORE: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on";

/// Whether a table is compared by ranges of its key: this must read each block about once.
pub fn suits(plan: &Plan, sessions: &mut EngineSessions, table: &SplitTable) -> Result<bool> {
    let EngineSessions { reader, target, .. } = sessions;
    if ![&table.source, &table.target].into_iter().all(is_plain) {
        return Ok(false);
    }
    if has_texts(&table.source) && (table.encoding.is_some() || !have_one_order(reader, target, table)?) {
        return Ok(false);
    }
    // Only the source's keys bound a range: if the target has far more rows, all of them may be in one.
    if whole::bytes(target, &table.target)? > whole::bytes(reader, &table.source)?.saturating_mul(MOST_MORE) {
        return Ok(false);
    }
    // An index finds the rows of the scope; a range of keys would skip most rows.
    if scope_size::is_small(reader, &table.source.name, &table.source_by, &plan.scope)? {
        return Ok(false);
    }
    is_in_order(reader, &table.source)
}

/// Returns how many keys a table's first range has: few if rows are wide, as these are mostly stored out of line.
/// Without statistics the width of the rows is unknown.
pub fn first_keys(reader: &mut Connection, table: &SplitTable) -> Result<i64> {
    let leaves: Vec<String> = table.source.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
    let query = format!(
        "SELECT coalesce(min(greatest(c.reltuples, 0)::float8 * {FIRST_BYTES} / greatest(pg_table_size(c.oid), 1)), 0)::numeric::bigint
           FROM pg_class c WHERE c.oid = ANY ({}::oid[])",
        array_literal(&leaves)
    );
    let keys = reader.count("the keys of a range", &query)?;
    Ok(keys.clamp(LEAST_KEYS, FIRST_KEYS))
}

/// Whether a table is plain, without partitions: a new partition could have keys of finished ranges.
fn is_plain(shape: &TableShape) -> bool {
    let is_plain = |name: &String| {
        shape.column(name).is_some_and(|column| column.builtin && TYPES.contains(&column.base.as_str()))
    };
    !shape.is_partitioned() && !shape.key().is_empty() && shape.key().iter().all(is_plain)
}

fn has_texts(shape: &TableShape) -> bool {
    let is_text = |base: &str| matches!(base, "text" | "character varying");
    shape.key().iter().filter_map(|name| shape.column(name)).any(|column| is_text(&column.base))
}

/// Whether both sides order texts in one way. Otherwise a row of the target would lie between the bounds of many
/// ranges, and be read with each.
fn have_one_order(reader: &mut Connection, target: &mut Connection, table: &SplitTable) -> Result<bool> {
    let of = |session: &mut Connection, shape: &TableShape| -> Result<Option<String>> {
        let order = session.query(ORDER, &[shape.oid.as_deref()])?;
        Ok(order.scalar().map(str::to_owned))
    };
    Ok(of(reader, &table.source)? == of(target, &table.target)?)
}

/// Whether the table is in memory, or its rows lie in the order of its keys. The source's statistics suffice: a copy
/// has written the rows in the same order.
fn is_in_order(reader: &mut Connection, shape: &TableShape) -> Result<bool> {
    let room = reader
        .count("the size of a server's buffers", "SELECT pg_size_bytes(current_setting('shared_buffers'))")?;
    if whole::bytes(reader, shape)? < room / 2 {
        return Ok(true);
    }
    for leaf in shape.leaves() {
        let order = reader.query(
            "SELECT abs(s.correlation) >= $3::float8 FROM pg_stats s JOIN pg_class c ON c.relname = s.tablename
               JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = s.schemaname
              WHERE c.oid = $1::oid AND s.attname = $2 AND NOT s.inherited",
            &[Some(&leaf.oid), shape.key().first().map(String::as_str), Some(&LEAST_CORRELATION.to_string())],
        )?;
        if order.scalar() != Some("t") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bounds of a range: keys behind one and up to another, as texts.
pub struct Range {
    pub after: Vec<String>,
    /// `None` if the range has no end.
    pub to: Option<Vec<String>>,
}

impl Range {
    /// Returns the next range, of this many keys of the source; if it has no more of them, of the target, at whose end
    /// clients may have added any number since the cutover.
    pub fn next(
        sessions: &mut EngineSessions,
        table: &SplitTable,
        at: &VerifyPosition,
        keys: i64,
    ) -> Result<Range> {
        let EngineSessions { reader, target, .. } = sessions;
        let begins = Range { after: at.after.clone(), to: None };
        let to = match begins.key_at(reader, &table.source, keys)? {
            None => begins.key_at(target, &table.target, keys)?,
            some => some,
        };
        Ok(Range { to, ..begins })
    }

    /// Returns the key of a side that is this many rows behind the beginning.
    fn key_at(&self, side: &mut Connection, shape: &TableShape, keys: i64) -> Result<Option<Vec<String>>> {
        let columns: Vec<String> = shape.key().iter().map(|name| format!("t.{}", ident(name))).collect();
        let texts: Vec<String> =
            columns.iter().map(|column| format!("pg_catalog.format('%s', {column})")).collect();
        let rows = side.run(&format!(
            "{BY_INDEX} SELECT {} FROM {} t WHERE {} ORDER BY {} OFFSET {} LIMIT 1",
            texts.join(", "),
            shape.name,
            self.condition(shape),
            columns.join(", "),
            keys - 1
        ))?;
        let row = rows.rows.into_iter().next();
        Ok(row.map(|row| row.into_iter().map(Option::unwrap_or_default).collect()))
    }

    /// Returns the condition for rows `t` of a side that are in the range.
    fn condition(&self, shape: &TableShape) -> String {
        let columns: Vec<String> = shape.key().iter().map(|name| format!("t.{}", ident(name))).collect();
        let bound = |values: &[String], operator: &str| {
            let values: Vec<String> = shape
                .key()
                .iter()
                .zip(values)
                .map(|(name, value)| {
                    let base = shape.column(name).map_or("text", |column| column.base.as_str());
                    format!("{}::pg_catalog.{}", literal(value), type_name(base))
                })
                .collect();
            format!("ROW({}) OPERATOR(pg_catalog.{operator}) ROW({})", columns.join(", "), values.join(", "))
        };
        let behind = (!self.after.is_empty()).then(|| bound(&self.after, ">"));
        let up_to = self.to.as_ref().map(|to| bound(to, "<="));
        let both: Vec<String> = behind.into_iter().chain(up_to).collect();
        if both.is_empty() { "true".to_owned() } else { both.join(" AND ") }
    }

    /// Returns these conditions with the scope, for both sides.
    pub fn conditions(&self, plan: &Plan, table: &SplitTable) -> [String; 2] {
        let scope = &plan.scope;
        [(&table.source, &table.source_by), (&table.target, &table.target_by)]
            .map(|(shape, by)| format!("{} AND {}", self.condition(shape), scope.filter(by, "t")))
    }
}

/// Returns the name of one of the server's own types in its schema.
fn type_name(base: &str) -> &str {
    match base {
        "smallint" => "int2",
        "integer" => "int4",
        "bigint" => "int8",
        "character varying" => "varchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_in_one_range() {
        let shape = TableShape { key: Some(vec!["id".into()]), ..TableShape::default() };
        let condition = |after: &[&str], to: Option<&str>| {
            let after = after.iter().map(|key| (*key).to_owned()).collect();
            Range { after, to: to.map(|key| vec![key.to_owned()]) }.condition(&shape)
        };
        let bound = |operator: &str, key: &str| {
            format!("ROW(t.\"id\") OPERATOR(pg_catalog.{operator}) ROW('{key}'::pg_catalog.text)")
        };
        assert_eq!(condition(&[], Some("m")), bound("<=", "m"));
        assert_eq!(condition(&["m"], Some("t")), format!("{} AND {}", bound(">", "m"), bound("<=", "t")));
        assert_eq!(condition(&["t"], None), bound(">", "t"));
        assert_eq!(condition(&[], None), "true");
    }
}
