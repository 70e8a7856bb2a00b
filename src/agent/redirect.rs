//! The redirect of a namespace and keyspace: what refuses clients with a stale route once
//! the last row of their keys has left. One for all splits, so that what a writer pays
//! depends neither on how many there were nor on what they took.

use super::filter::Filter;
use super::scope::bucket_for_writers;
use super::shape::Column;
use super::template::fill;
use super::types::Family;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::Strategy;
use crate::remote::quote::{array_literal, ident, literal};

const LOOKUP: &str = include_str!("../../sql/agent/redirect_lookup.sql");

/// Ranges that the look-up's text lists; where there are more, what lies between neighbours
/// is looked up, too.
const MAX_LITERAL_RANGES: usize = 512;

/// What a redirect looks at, with a trigger for each. Most updates leave the key alone: they
/// are asked for the new row's alone, since each look costs the tenants that stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Insert,
    Update,
    /// An update that sets the column, of the row as it was.
    Rekey,
    Delete,
}

impl Write {
    pub const ALL: [Write; 4] = [Write::Insert, Write::Update, Write::Rekey, Write::Delete];

    fn letter(self) -> char {
        match self {
            Write::Insert => 'i',
            Write::Update => 'u',
            Write::Rekey => 'k',
            Write::Delete => 'd',
        }
    }
}

/// A redirect as it is on a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    pub id: i32,
    pub namespace: String,
    pub keyspace: String,
    pub entries: Strategy,
}

/// What a key column of a family is compared as: keys of one keyspace are numbers, texts
/// or uuids, whatever the type is that a table has them in.
fn compared_as(family: &Family) -> &'static str {
    match family {
        Family::Integer | Family::Numeric => "pg_catalog.numeric",
        Family::Text | Family::Enum(_) => "pg_catalog.text",
        Family::Uuid => "pg_catalog.uuid",
    }
}

/// A type of shard-by column, as the look-up for it must know it.
pub fn column_type(base: &str, is_enum: bool) -> Column {
    Column { base: base.to_owned(), is_enum, ..Column::default() }
}

impl Redirect {
    /// The table of what has left.
    pub fn table(&self) -> String {
        format!("shardmaster_agent.left_{}", self.id)
    }

    /// The look-up function, one for each type of column.
    pub fn function(&self) -> String {
        format!("redirected_{}", self.id)
    }

    /// What is asked before it, one for each type as well.
    pub fn filter_function(&self) -> String {
        format!("may_have_left_{}", self.id)
    }

    /// Fires before the triggers of foreign keys, as those of splits do.
    pub fn trigger_prefix(&self) -> String {
        format!("00_shardmaster_redirect_{}_", self.id)
    }

    pub fn trigger_name(&self, write: Write) -> String {
        format!("{}{}", self.trigger_prefix(), write.letter())
    }

    /// Creates the table; keys are compared as those of the column are.
    pub fn create_table(&self, column: &Column) -> String {
        let table = self.table();
        let entry = match self.entries {
            Strategy::Directory => {
                let key = column.family().map_or("pg_catalog.text", |family| compared_as(&family));
                format!("key {key} PRIMARY KEY")
            }
            Strategy::Hash { .. } => "key int4 PRIMARY KEY".to_owned(),
            Strategy::Range { of } => {
                let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
                format!("lower {0}{collate}, upper {0}{collate}", of.name())
            }
        };
        let index = match self.entries {
            Strategy::Directory | Strategy::Hash { .. } => String::new(),
            Strategy::Range { .. } => {
                format!("CREATE INDEX IF NOT EXISTS left_{}_lower ON {table} (lower);", self.id)
            }
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {table} ({entry}, shard text NOT NULL, version bigint NOT NULL,
                 split_id bigint NOT NULL, token text NOT NULL, since timestamptz NOT NULL DEFAULT clock_timestamp());
             {index}"
        )
    }

    /// Takes out what is in the names, keys or buckets; `also` is one more condition.
    pub fn delete_named(&self, names: &[String], also: &str) -> String {
        let table = self.table();
        let list = array_literal(names);
        match self.entries {
            // By the type that the table's own column has.
            Strategy::Directory => format!(
                "DELETE FROM {table} WHERE key IN (SELECT (pg_catalog.jsonb_populate_record(NULL::{table},
                        pg_catalog.jsonb_build_object('key', name))).key FROM pg_catalog.unnest({list}::text[]) name) AND {also}"
            ),
            Strategy::Hash { .. } | Strategy::Range { .. } => {
                format!("DELETE FROM {table} WHERE key = ANY ({list}::int4[]) AND {also}")
            }
        }
    }

    /// Puts keys or buckets in, in the place of what was known of them.
    pub fn insert_named(&self, names: &[String], column: &Column, facts: &Facts<'_>) -> String {
        let key_type = match self.entries {
            Strategy::Directory => column.family().map_or("pg_catalog.text", |family| compared_as(&family)),
            Strategy::Hash { .. } | Strategy::Range { .. } => "int4",
        };
        format!(
            "INSERT INTO {} (key, shard, version, split_id, token)
             SELECT key, {} FROM pg_catalog.unnest({}::{key_type}[]) key
             ON CONFLICT (key) DO UPDATE SET shard = EXCLUDED.shard, version = EXCLUDED.version,
                    split_id = EXCLUDED.split_id, token = EXCLUDED.token, since = EXCLUDED.since
              WHERE left_{}.token <> EXCLUDED.token",
            self.table(),
            facts.list(),
            array_literal(names),
            self.id
        )
    }

    /// Puts ranges in; the facts end with the time.
    pub fn insert_ranges(&self, ranges: &[Interval], of: Ordered, facts: &str) -> String {
        let bound = |bound: &Option<String>| {
            bound
                .as_ref()
                .map_or(format!("NULL::{}", of.name()), |key| format!("{}::{}", literal(key), of.name()))
        };
        let rows: Vec<String> = ranges
            .iter()
            .map(|range| format!("({}, {}, {facts})", bound(&range.lower), bound(&range.upper)))
            .collect();
        format!(
            "INSERT INTO {} (lower, upper, shard, version, split_id, token, since) VALUES {}",
            self.table(),
            rows.join(", ")
        )
    }

    /// The look-up for one type of column, with a filter of what has left.
    pub fn look_up(&self, column: &Column, version: i64, filter: &str) -> String {
        fill(
            LOOKUP,
            &[
                ("function", self.function()),
                ("filter_function", self.filter_function()),
                ("security", self.security_of_filter().to_owned()),
                ("type", column.base.clone()),
                ("filter", filter.to_owned()),
                ("namespace", literal(&self.namespace)),
                ("keyspace", literal(&self.keyspace)),
                ("id", self.id.to_string()),
                ("version", version.to_string()),
                ("found", self.found(column)),
            ],
        )
    }

    /// A writer may call nothing in the agent's schema by its name. What is in the
    /// server's own needs no rights, and spares it the change of the role.
    fn security_of_filter(&self) -> &'static str {
        match self.entries {
            Strategy::Hash { .. } => "SECURITY DEFINER",
            Strategy::Directory | Strategy::Range { .. } => "SECURITY INVOKER",
        }
    }

    /// The rows of the table that stand for the value `wanted`.
    fn found(&self, column: &Column) -> String {
        let table = self.table();
        match self.entries {
            Strategy::Directory => {
                let family = column.family();
                let value = match &family {
                    // Not a cast: whoever owns an enum could have made one.
                    Some(Family::Enum(_)) | None => "pg_catalog.format('%s', wanted)".to_owned(),
                    Some(family) => format!("wanted::{}", compared_as(family)),
                };
                format!(
                    "(SELECT l.shard, l.version FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) {value})"
                )
            }
            Strategy::Hash { of, buckets: count } => {
                // In a query of its own, or it would be hashed anew for each row.
                let bucket = bucket_for_writers("wanted", of, count);
                format!(
                    "(SELECT l.shard, l.version FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) (SELECT {bucket}))"
                )
            }
            // No two of them overlap, so the one that begins last below the value decides.
            Strategy::Range { of } => {
                let value = ordered("wanted", of);
                format!(
                    "(SELECT l.shard, l.version
                        FROM (SELECT * FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {value} ORDER BY b.lower DESC LIMIT 1) l
                       WHERE l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper
                       UNION ALL
                      SELECT l.shard, l.version FROM {table} l
                       WHERE l.lower IS NULL AND (l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper))"
                )
            }
        }
    }

    /// One of a table's triggers, made to fire always; that goes over to clones. The column
    /// is known by its number, whatever name it gets.
    pub fn trigger(&self, column: &Column, table: &str, write: Write) -> String {
        let name = ident(&self.trigger_name(write));
        let by = ident(&column.name);
        let refused = |row: &str| {
            let (filter, function) = (self.filter_function(), self.function());
            format!("shardmaster_agent.{filter}({row}.{by}) AND shardmaster_agent.{function}({row}.{by})")
        };
        let (event, when) = match write {
            Write::Insert => ("INSERT".to_owned(), refused("NEW")),
            Write::Update => ("UPDATE".to_owned(), refused("NEW")),
            Write::Rekey => (
                format!("UPDATE OF {by}"),
                format!("OLD.{by} IS DISTINCT FROM NEW.{by} AND {}", refused("OLD")),
            ),
            Write::Delete => ("DELETE".to_owned(), refused("OLD")),
        };
        format!(
            "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION shardmaster_agent.redirect();
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};"
        )
    }
}

/// What is known of each entry.
pub struct Facts<'a> {
    pub shard: &'a str,
    pub version: i64,
    pub split: i64,
    pub token: &'a str,
}

impl Facts<'_> {
    /// In the order of the columns.
    pub fn list(&self) -> String {
        format!("{}, {}, {}, {}", literal(self.shard), self.version, self.split, literal(self.token))
    }
}

/// The test whether something may have left.
pub fn filter_of_bits(filter: &Filter) -> String {
    format!("{} OPERATOR(pg_catalog.=) 1", filter.test("wanted"))
}

/// The same for ranges, in their order: between which of their bounds a value lies is
/// found by halves. Behind an odd number of them it is in a range; an open lower bound
/// counts as one.
pub fn filter_of_ranges(ranges: &[Interval], of: Ordered) -> String {
    let mut joined: Vec<Interval> = Vec::new();
    let group = ranges.len().div_ceil(MAX_LITERAL_RANGES).max(1);
    for (position, range) in ranges.iter().enumerate() {
        match joined.last_mut() {
            Some(last) if position % group != 0 || last.upper == range.lower => {
                last.upper.clone_from(&range.upper);
            }
            _ => joined.push(range.clone()),
        }
    }
    let open = usize::from(joined.first().is_some_and(|first| first.lower.is_none()));
    let bounds: Vec<String> =
        joined.into_iter().flat_map(|range| [range.lower, range.upper]).flatten().collect();
    // With E, whatever the writer's standard_conforming_strings.
    let array =
        format!("E{}::pg_catalog.{}[]", array_literal(&bounds).replace('\\', "\\\\"), catalog_name(of));
    let value = ordered("wanted", of);
    format!(
        "(pg_catalog.width_bucket({value}, {array}) OPERATOR(pg_catalog.+) {open}) OPERATOR(pg_catalog.%) 2
            OPERATOR(pg_catalog.=) 1"
    )
}

fn catalog_name(of: Ordered) -> &'static str {
    match of {
        Ordered::BigInt => "int8",
        Ordered::Text => "text",
        Ordered::Uuid => "uuid",
    }
}

/// A value as its ranges are ordered.
fn ordered(value: &str, of: Ordered) -> String {
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    format!("({value}::pg_catalog.{}{collate})", catalog_name(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn ranges(bounds: &[(Option<i64>, Option<i64>)]) -> Vec<Interval> {
        let bound = |bound: Option<i64>| bound.map(|number| number.to_string());
        bounds.iter().map(|(lower, upper)| Interval { lower: bound(*lower), upper: bound(*upper) }).collect()
    }

    #[test]
    fn what_entries_are_is_read_back() {
        let count = NonZeroU32::new(16).unwrap();
        for entries in [
            Strategy::Directory,
            Strategy::Hash { of: Ordered::Uuid, buckets: count },
            Strategy::Range { of: Ordered::Text },
        ] {
            assert_eq!(Strategy::of_entries(&entries.entries()), Some(entries));
        }
        assert_eq!(Strategy::of_entries("0 buckets of text"), None);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let text = filter_of_ranges(
            &ranges(&[(Some(1), Some(5)), (Some(5), Some(9)), (Some(20), None)]),
            Ordered::BigInt,
        );
        assert!(
            text.contains("E'{\"1\",\"9\",\"20\"}'::pg_catalog.int8[]) OPERATOR(pg_catalog.+) 0"),
            "{text}"
        );
    }

    #[test]
    fn an_open_lower_bound_counts_as_one() {
        let text = filter_of_ranges(&ranges(&[(None, Some(5)), (Some(7), Some(9))]), Ordered::BigInt);
        assert!(
            text.contains("E'{\"5\",\"7\",\"9\"}'::pg_catalog.int8[]) OPERATOR(pg_catalog.+) 1"),
            "{text}"
        );
    }

    #[test]
    fn the_list_of_ranges_is_bounded() {
        let many: Vec<(Option<i64>, Option<i64>)> =
            (0..10_000).map(|n| (Some(10 * n), Some(10 * n + 5))).collect();
        let text = filter_of_ranges(&ranges(&many), Ordered::BigInt);
        assert!(text.matches('"').count() <= 4 * MAX_LITERAL_RANGES, "{}", text.len());
    }
}
