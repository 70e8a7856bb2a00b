//! A filter of bits, which spares most rows of tenants that stay a query. For keys it is a Bloom filter with one hash;
//! for buckets, each has a bit of its own.

use super::scope;
use super::shape::Column;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::quote::array_literal;
use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use std::num::NonZeroU32;

/// Bits for each key: one of this many rows that stay is looked up all the same.
const BITS_PER_KEY: usize = 16;
const MIN_BITS: usize = 1 << 10;
/// The limit of one megabyte, which each session that writes keeps in memory.
const MAX_BITS: usize = 1 << 23;

/// The filter of one type of key.
pub struct Filter {
    /// SQL expression: the number of the bit of a value, which stands for {}.
    position: String,
    bytes: Vec<u8>,
}

fn bits_of(keys: usize) -> usize {
    keys.saturating_mul(BITS_PER_KEY).clamp(MIN_BITS, MAX_BITS).next_power_of_two()
}

impl Filter {
    /// Returns the size of the filter of a scope in bytes; 0 if it has none.
    pub fn size(scope: &Scope) -> usize {
        match scope {
            Scope::Keys(keys) => bits_of(keys.len()) / 8,
            Scope::Buckets { count, .. } => count.get().div_ceil(8) as usize,
            Scope::Ranges { .. } => 0,
        }
    }

    /// Returns the filter of a scope, for one type of column. Returns None if it has no filter.
    pub fn of_scope(
        connection: &mut Connection,
        scope: &Scope,
        column: &Column,
    ) -> Result<Option<Filter>, RemoteError> {
        match scope {
            Scope::Keys(keys) => Filter::of_keys(connection, keys, column),
            Scope::Buckets { of, count, buckets } => Ok(Some(Filter::of_buckets(*of, *count, buckets))),
            Scope::Ranges { .. } => Ok(None),
        }
    }

    /// Makes a filter of the hashes that this server computes for the keys.
    fn of_keys(
        connection: &mut Connection,
        keys: &[String],
        column: &Column,
    ) -> Result<Option<Filter>, RemoteError> {
        let Some(mut filter) = Filter::new(column, keys.len()) else { return Ok(None) };
        let positions = connection.run(&format!(
            "SELECT {} FROM unnest({}::{}[]) key",
            filter.position("key"),
            array_literal(keys),
            column.base
        ))?;
        for row in positions.rows {
            if let [Some(position)] = row.as_slice() {
                filter.set(position.parse().unwrap_or(0));
            }
        }
        Ok(Some(filter))
    }

    /// Returns None if equal keys need not have equal bytes, or if the type has no hash that all servers know.
    fn new(column: &Column, keys: usize) -> Option<Filter> {
        let hash = match column.base.as_str() {
            "smallint" | "integer" | "bigint" => "pg_catalog.hashint8extended({value}::pg_catalog.int8, 0)",
            "text" | "character varying" if column.collation.is_none() => {
                "pg_catalog.hashtextextended({value}::pg_catalog.text, 0)"
            }
            "uuid" => "pg_catalog.uuid_hash_extended({value}, 0)",
            _ => return None,
        };
        Some(Filter::by_hash(hash, keys))
    }

    /// Returns an empty filter for this many keys, with a hash of {value}, given as SQL.
    pub fn by_hash(hash: &str, keys: usize) -> Filter {
        let bits = bits_of(keys);
        let position = format!("({hash} OPERATOR(pg_catalog.&) {})::pg_catalog.int4", bits - 1);
        Filter { position, bytes: vec![0; bits / 8] }
    }

    /// Returns the filter of these buckets, of `count` in all.
    pub fn of_buckets(of: Ordered, count: NonZeroU32, buckets: &[String]) -> Filter {
        let bytes = vec![0; count.get().div_ceil(8) as usize];
        let mut filter = Filter { position: scope::bucket_for_writers("{value}", of, count), bytes };
        for bucket in buckets.iter().filter_map(|bucket| bucket.parse().ok()) {
            filter.set(bucket);
        }
        filter
    }

    /// Returns SQL for the number of a value's bit.
    pub fn position(&self, value: &str) -> String {
        fill(&self.position, &[("value", sql(value))])
    }

    pub fn set(&mut self, position: usize) {
        if let Some(byte) = self.bytes.get_mut(position / 8) {
            *byte |= 1 << (position % 8);
        }
    }

    /// Returns SQL for a value's bit.
    pub fn test(&self, value: &str) -> String {
        let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // The E makes it independent of the writer's standard_conforming_strings.
        format!("pg_catalog.get_bit(E'\\\\x{hex}'::pg_catalog.bytea, {})", self.position(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(base: &str, collation: Option<&str>) -> Column {
        Column {
            name: "k".into(),
            type_name: base.into(),
            base: base.into(),
            collation: collation.map(str::to_owned),
            ..Column::default()
        }
    }

    #[test]
    fn bits_are_numbered_as_get_bit_numbers_them() {
        let mut filter = Filter::new(&column("bigint", None), 1).unwrap();
        for position in [0, 9, 1023] {
            filter.set(position);
        }
        let test = filter.test("k");
        assert!(test.contains("E'\\\\x0102"), "{test}");
        assert!(test.contains("80'::"), "{test}");
    }

    #[test]
    fn types_whose_equality_is_not_that_of_bytes_have_none() {
        assert!(Filter::new(&column("text", Some("icu_ci")), 1).is_none());
        assert!(Filter::new(&column("numeric", None), 1).is_none());
        assert!(Filter::new(&column("character", None), 1).is_none());
    }

    #[test]
    fn a_bucket_has_a_bit_of_its_own() {
        let count = NonZeroU32::new(10).unwrap();
        let filter = Filter::of_buckets(Ordered::Text, count, &["0".into(), "9".into()]);
        let test = filter.test("wanted");
        assert!(test.contains("E'\\\\x0102'"), "{test}");
        assert!(test.contains("shardmaster_agent.shard_for(wanted::pg_catalog.text, 10)"), "{test}");
    }

    #[test]
    fn the_size_is_bounded() {
        assert_eq!(Filter::new(&column("uuid", None), 10_000).unwrap().bytes.len(), 1 << 15);
        assert_eq!(Filter::new(&column("uuid", None), 100_000_000).unwrap().bytes.len(), MAX_BITS / 8);
    }
}
