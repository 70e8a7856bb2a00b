//! A split's scope as the shards see it: conditions on a table's shard-by column, and the table of the scope that
//! triggers read.

use super::session_hash::AGENT;
use super::shape::Column;
use super::types::TypeFamily;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::quote::{array_literal, ident, literal};
use crate::remote::template::{fill, word};
use std::num::NonZeroU32;

/// The greatest number of keys for which comparing each costs less than finding one by its text.
const LISTED_KEYS: usize = 32;

/// Returns a value as the type that its keyspace hashes and orders.
fn cast(value: &str, of: Ordered) -> String {
    match of {
        Ordered::BigInt => format!("{value}::pg_catalog.int8"),
        Ordered::Text => format!("{value}::pg_catalog.text"),
        Ordered::Uuid => format!("{value}::pg_catalog.uuid"),
    }
}

/// Returns the hash by the functions in one schema: the mover's sessions have their own.
fn bucket(schema: &str, value: &str, of: Ordered, count: NonZeroU32) -> String {
    format!("{schema}.shard_for({}, {count})", cast(value, of))
}

/// Returns the bucket of a value, for triggers: they call nothing that could be dropped.
pub fn bucket_for_writers(value: &str, of: Ordered, count: NonZeroU32) -> String {
    bucket(AGENT, value, of, count)
}

/// Returns a comparison in the order of the keys: texts are compared by their bytes.
fn compare(value: &str, operator: &str, bound: &str, of: Ordered) -> String {
    // Numbers keep their own type, whose indexes have the operators.
    let value = match of {
        Ordered::BigInt => value.to_owned(),
        Ordered::Text | Ordered::Uuid => cast(value, of),
    };
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    format!("{value} OPERATOR(pg_catalog.{operator}) {bound}{collate}")
}

fn in_range(value: &str, range: &Interval, of: Ordered) -> String {
    let bound = |operator: &str, bound: &Option<String>| {
        bound.as_ref().map(|key| compare(value, operator, &cast(&literal(key), of), of))
    };
    let parts: Vec<String> =
        [bound(">=", &range.lower), bound("<", &range.upper)].into_iter().flatten().collect();
    if parts.is_empty() {
        // Rows without a key are in no scope.
        return format!("{value} IS NOT NULL");
    }
    parts.join(" AND ")
}

/// Merges adjacent ranges, so that one condition covers them.
fn merged(ranges: &[Interval]) -> Vec<Interval> {
    let mut merged: Vec<Interval> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.upper.is_some() && last.upper == range.lower => {
                last.upper.clone_from(&range.upper);
            }
            _ => merged.push(range.clone()),
        }
    }
    merged
}

/// Returns a column of a row that COPY reads: a generated column has no value yet.
pub fn arriving(column: &Column) -> String {
    match &column.generated {
        Some(expression) => format!("(({expression})::{})", column.base),
        None => ident(&column.name),
    }
}

/// Returns a list of keys in the type of a column. An enum's name is left out, since another type may have it by then;
/// the server knows the column's type.
fn listed(keys: &[String], column: &Column) -> String {
    if column.is_enum { array_literal(keys) } else { format!("{}::{}[]", array_literal(keys), column.base) }
}

impl Scope {
    /// Returns a condition for statements of the mover: a value is in the scope. `list` writes the keys.
    fn contains(&self, value: &str, list: impl Fn(&[String]) -> String) -> String {
        match self {
            Scope::Keys(keys) => format!("{value} = ANY ({})", list(keys)),
            Scope::Buckets { of, count, buckets } => {
                let numbers = array_literal(buckets);
                format!("{} = ANY ({numbers}::int4[])", bucket("pg_temp", value, *of, *count))
            }
            Scope::Ranges { of, ranges } => {
                let parts: Vec<String> =
                    merged(ranges).iter().map(|range| format!("({})", in_range(value, range, *of))).collect();
                format!("({})", parts.join(" OR "))
            }
        }
    }

    /// Returns a condition that a text value is in the scope.
    pub fn holds(&self, value: &str) -> String {
        self.contains(value, |keys| format!("{}::text[]", array_literal(keys)))
    }

    /// Returns a predicate over the scope, for statements of the mover.
    pub fn predicate(&self, column: &Column, alias: &str) -> String {
        self.contains(&format!("{alias}.{}", ident(&column.name)), |keys| listed(keys, column))
    }

    /// Returns a predicate for rows that other conditions find: a filter that the planner has no estimate for. A
    /// target's statistics do not cover rows that were just copied. By them one row was expected of the scope, so for
    /// each window the whole table was read, and compared with every key.
    pub fn filter(&self, column: &Column, alias: &str) -> String {
        format!("CASE WHEN {} THEN true END", self.predicate(column, alias))
    }

    /// Returns a condition over the columns of a row that COPY reads: the row is in the scope. COPY plans nothing, so
    /// each key of a list would be compared with every row; the names in a JSON object are sorted.
    pub fn arriving(&self, column: &Column) -> String {
        let value = arriving(column);
        match self {
            Scope::Keys(keys) if keys.len() > LISTED_KEYS && column.family() != Some(TypeFamily::Numeric) => {
                let names = keys.iter().map(|key| (key.clone(), serde_json::Value::Null));
                let object = serde_json::Value::Object(names.collect());
                // This avoids a cast that could be defined by somebody else.
                let text = if column.is_enum {
                    format!("pg_catalog.format('%s', {value})")
                } else {
                    format!("{value}::pg_catalog.text")
                };
                format!("({}::pg_catalog.jsonb OPERATOR(pg_catalog.?) {text})", literal(&object.to_string()))
            }
            Scope::Keys(_) | Scope::Buckets { .. } | Scope::Ranges { .. } => {
                self.contains(&value, |keys| listed(keys, column))
            }
        }
    }

    /// Returns the condition of a trigger over one or two versions of a row, without a look-up. Returns None if it
    /// would be too long, or would call what only the mover may call.
    pub fn condition(&self, values: &[String], column: &Column, longest: usize) -> Option<String> {
        match self {
            Scope::Keys(keys) => {
                let bytes: usize = keys.iter().map(|key| key.len() + 4).sum();
                // One array serves both versions: each constant costs time. Arrays of a domain have no operator.
                let cast = if column.is_enum { String::new() } else { format!("::{}", column.base) };
                let all: Vec<String> = values.iter().map(|value| format!("{value}{cast}")).collect();
                let all = all.join(", ");
                (bytes <= longest).then(|| format!("ARRAY[{all}] && {}", listed(keys, column)))
            }
            Scope::Buckets { .. } => None,
            Scope::Ranges { .. } => {
                let tests: Vec<String> =
                    values.iter().map(|value| self.contains(value, |keys| listed(keys, column))).collect();
                let condition = tests.join(" OR ");
                (condition.len() <= longest * 4).then_some(condition)
            }
        }
    }

    /// Returns the statements that make the table of the scope, given the type of its first column.
    pub fn table(&self, table: &str, key_type: &str) -> String {
        let create =
            |columns: &str| format!("CREATE TABLE IF NOT EXISTS shardmaster_agent.{table} ({columns})");
        let fill =
            |rows: String| format!("INSERT INTO shardmaster_agent.{table} {rows} ON CONFLICT DO NOTHING");
        let (create, fill) = match self {
            Scope::Keys(keys) => (
                create(&format!("key {key_type} PRIMARY KEY")),
                fill(format!("SELECT pg_catalog.unnest({}::{key_type}[])", array_literal(keys))),
            ),
            Scope::Buckets { buckets, .. } => (
                create("key int4 PRIMARY KEY"),
                fill(format!("SELECT pg_catalog.unnest({}::int4[])", array_literal(buckets))),
            ),
            Scope::Ranges { of, ranges } => {
                let collate = if *of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
                let bound = of.as_str();
                (
                    create(&format!("key text PRIMARY KEY, lower {bound}{collate}, upper {bound}{collate}")),
                    fill(format!("VALUES {}", range_rows(ranges, *of))),
                )
            }
        };
        format!("{create}; {fill}; ANALYZE shardmaster_agent.{table}")
    }

    /// Returns a condition that a row `s` of the scope's table stands for a value, for functions that have no
    /// search_path of their own.
    pub fn matches(&self, value: &str) -> String {
        match self {
            Scope::Keys(_) => format!("s.key OPERATOR(pg_catalog.=) {value}"),
            Scope::Buckets { of, count, .. } => {
                // This is a query of its own; otherwise the value would be hashed anew for each row of the table.
                format!("s.key OPERATOR(pg_catalog.=) (SELECT {})", bucket_for_writers(value, *of, *count))
            }
            Scope::Ranges { of, .. } => format!(
                "(s.lower IS NULL OR {}) AND (s.upper IS NULL OR {})",
                compare(value, ">=", "s.lower", *of),
                compare(value, "<", "s.upper", *of)
            ),
        }
    }

    /// Returns the statements that must be run before, for the transaction, and the predicate, if nothing is
    /// installed.
    pub fn dry_predicate(&self, column: &Column, alias: &str) -> (String, String) {
        (self.functions("pg_temp").unwrap_or_default(), self.predicate(column, alias))
    }

    /// Returns the statements that must be run before, for the session, and a condition that a value of a type is in
    /// the scope, for a session that is not the mover's.
    pub fn of_value(&self, value: &str, base: &str) -> (String, String) {
        let predicate = self.contains(value, |keys| format!("{}::{base}[]", array_literal(keys)));
        (self.functions("pg_temp").unwrap_or_default(), predicate)
    }

    /// Returns the functions that matching needs on the shard beside the table, in one of this extension's schemas.
    pub fn functions(&self, schema: &str) -> Option<String> {
        match self {
            Scope::Buckets { .. } => {
                Some(fill(include_str!("../../sql/agent/shard_for.sql"), &[("schema", word(schema))]))
            }
            Scope::Keys(_) | Scope::Ranges { .. } => None,
        }
    }
}

/// Returns the rows of a scope's table.
pub fn range_rows(ranges: &[Interval], of: Ordered) -> String {
    let bound = |bound: &Option<String>| {
        bound.as_ref().map_or(format!("NULL::{}", of.as_str()), |key| cast(&literal(key), of))
    };
    let rows: Vec<String> = ranges
        .iter()
        .map(|range| {
            format!("({}, {}, {})", literal(&range.name(of)), bound(&range.lower), bound(&range.upper))
        })
        .collect();
    rows.join(", ")
}
