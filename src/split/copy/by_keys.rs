//! Rows of buckets on a source that hashes in PL/pgSQL, which costs more for each row than its copy does: the distinct
//! keys of a span are read first and hashed here; then the moving rows are found by their keys. Both are read in one
//! snapshot, so no row has a key that was not seen. Besides the rows, each key of the span is sent, whatever part of
//! the rows moves.
//!
//! A key is the same here and there if its bytes are: numbers and uuids as they are, texts by the order of their
//! bytes, whatever collation their column has, if the server keeps them in UTF-8.

use super::{collision, text_rows};
use crate::agent::blocks::BlockSpan;
use crate::agent::error::Result;
use crate::agent::shape::Column;
use crate::agent::types::TypeFamily;
use crate::catalog::split::Plan;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::copy::Bounds;
use crate::remote::gather::{Gathered, gather};
use crate::remote::quote::{array_literal, ident};
use crate::split::copy::scope_filter::{OutOfScope, explain};
use crate::split::engine::Engine;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;
use crate::split::table::key_matcher::KeyMatcher;

/// The greatest number of keys of a span, and of their bytes. They are in memory here, and the moving ones are in a
/// statement for the source.
const MOST_KEYS: usize = 100_000;
const MOST_BYTES: usize = 4 << 20;
/// Earlier servers compare each row with each key of a list.
const LISTS_ARE_HASHED: i32 = 140_000;

/// How the keys of a table are read.
pub struct ByKeys {
    /// A row's key as SQL, and the type of lists of such keys.
    value: String,
    list_of: &'static str,
    matcher: KeyMatcher,
}

/// The keys of a span.
pub enum LookedSpan {
    /// The number of keys, and the condition for rows `t` of the moving ones. The condition is `None` if no key moves.
    Keys(usize, Option<String>),
    /// There are more keys than are read at once.
    TooMany,
}

impl ByKeys {
    /// Returns None if rows are found by the predicate instead.
    pub fn of(plan: &Plan, sessions: &EngineSessions, table: &SplitTable) -> Option<ByKeys> {
        let reader = &sessions.reader;
        if !sessions.hashes_slowly || reader.server_version() < LISTS_ARE_HASHED {
            return None;
        }
        let has_utf8 = reader.server_encoding().is_some_and(|encoding| encoding == "UTF8");
        ByKeys::new(&plan.scope, &table.source_by, has_utf8)
    }

    fn new(scope: &Scope, column: &Column, has_utf8: bool) -> Option<ByKeys> {
        let Scope::Buckets { of, .. } = scope else { return None };
        if !column.builtin {
            return None;
        }
        let name = format!("t.{}", ident(&column.name));
        let (hashed, value, list_of) = match (column.family()?, column.base.as_str()) {
            (TypeFamily::Integer, "smallint") => (Ordered::BigInt, name, "pg_catalog.int2"),
            (TypeFamily::Integer, "integer") => (Ordered::BigInt, name, "pg_catalog.int4"),
            (TypeFamily::Integer, "bigint") => (Ordered::BigInt, name, "pg_catalog.int8"),
            (TypeFamily::Uuid, _) => (Ordered::Uuid, name, "pg_catalog.uuid"),
            // Other text types ignore trailing blanks.
            (TypeFamily::Text, "text" | "character varying") if has_utf8 => {
                let value = format!("({name}::pg_catalog.text) COLLATE pg_catalog.\"C\"");
                (Ordered::Text, value, "pg_catalog.text")
            }
            (TypeFamily::Integer | TypeFamily::Text | TypeFamily::Numeric | TypeFamily::Enum(_), _) => {
                return None;
            }
        };
        let matcher = KeyMatcher::of(scope, hashed, 0).filter(|_| hashed == *of)?;
        Some(ByKeys { value, list_of, matcher })
    }

    /// Returns the query of the keys.
    fn query(&self, leaf: &str, span: BlockSpan) -> String {
        let value = &self.value;
        let condition = span.condition(&format!("{value} IS NOT NULL"));
        let most = MOST_KEYS + 1;
        format!(
            "COPY (SELECT DISTINCT {value} FROM ONLY {leaf} t WHERE {condition} LIMIT {most}) TO STDOUT (FORMAT text)"
        )
    }

    /// Reads the keys of a span of a table's leaf.
    pub fn look(
        &self,
        engine: &mut Engine,
        position: usize,
        leaf: &str,
        span: BlockSpan,
    ) -> Result<LookedSpan> {
        let table = &engine.tables[position];
        let read =
            gather(&mut engine.sessions.reader, &[self.query(leaf, span)], MOST_BYTES, Bounds::unlimited())
                .map_err(|(_, error)| collision::explain_of(&engine.tenure.plan, table, engine.mode, error))?;
        let Gathered::All(read) = read else { return Ok(LookedSpan::TooMany) };
        let read = read.first().map_or(&[][..], Vec::as_slice);
        self.moving(read)
            .ok_or_else(|| explain(OutOfScope::Unreadable, &engine.tenure.plan, &table.target.name).into())
    }

    /// Returns the keys that move, or None if the bytes are not a list of keys.
    fn moving(&self, read: &[u8]) -> Option<LookedSpan> {
        let rows = text_rows::read(read, 1)?;
        if rows.len() > MOST_KEYS {
            return Some(LookedSpan::TooMany);
        }
        let count = rows.len();
        let keys: Option<Vec<_>> = rows.into_iter().map(|row| row.into_iter().next().flatten()).collect();
        let moving: Vec<String> =
            keys?.into_iter().filter(|key| self.matcher.holds_text(key)).map(Into::into).collect();
        let condition = || {
            // This form hides the list from the planner, which would compare each element with its statistics.
            let list = array_literal(&moving);
            format!("CASE WHEN {} = ANY ({list}::{}[]) THEN true END", self.value, self.list_of)
        };
        Some(LookedSpan::Keys(count, (!moving.is_empty()).then(condition)))
    }
}

/// Returns the factor that adjusts a span of this many keys to what is read at once, with some room.
pub fn factor(keys: usize) -> f64 {
    0.75 * MOST_KEYS as f64 / (keys as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn by_keys(of: Ordered, keys: &[&str]) -> ByKeys {
        let count = NonZeroU32::new(1 << 20).unwrap();
        let buckets = keys.iter().map(|key| of.bucket(key, count).to_string()).collect();
        let matcher = KeyMatcher::of(&Scope::Buckets { of, count, buckets }, of, 0).unwrap();
        ByKeys { value: "t.k".to_owned(), list_of: "text", matcher }
    }

    #[test]
    fn the_keys_that_move_are_listed_as_they_are() {
        let texts = by_keys(Ordered::Text, &["", "a\tb\\", "o'clock", "NULL"]);
        let read = "\na\\tb\\\\\no'clock\nNULL\nstays\nO'clock\n";
        let Some(LookedSpan::Keys(6, Some(condition))) = texts.moving(read.as_bytes()) else { panic!() };
        let list = array_literal(&["", "a\tb\\", "o'clock", "NULL"].map(str::to_owned));
        assert_eq!(condition, format!("CASE WHEN t.k = ANY ({list}::text[]) THEN true END"));
        assert!(matches!(texts.moving(b"stays\n"), Some(LookedSpan::Keys(1, None))));
        assert!(matches!(texts.moving(b""), Some(LookedSpan::Keys(0, None))));
    }

    #[test]
    fn what_is_no_list_of_keys_is_none() {
        let numbers = by_keys(Ordered::BigInt, &["7"]);
        for read in [&b"\\N\n"[..], b"7", b"7\t8\n", b"\xff\n"] {
            assert!(numbers.moving(read).is_none(), "{read:?}");
        }
        let keys = |count: usize| "7\n".repeat(count).into_bytes();
        assert!(matches!(numbers.moving(&keys(MOST_KEYS)), Some(LookedSpan::Keys(MOST_KEYS, Some(_)))));
        assert!(matches!(numbers.moving(&keys(MOST_KEYS + 1)), Some(LookedSpan::TooMany)));
    }

    #[test]
    fn a_span_of_too_many_keys_gets_shorter() {
        assert!(factor(MOST_KEYS) < 1.0 && factor(MOST_KEYS / 10) > 2.0);
        assert!(factor(0).is_finite());
    }
}
