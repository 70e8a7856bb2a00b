//! How keys are compared with columns of shards, which may have another type of the same family.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::{LookupShape, WatchedColumn};
use crate::catalog::lookup::Lookup;
use crate::catalog::shard::Shard;
use crate::error::SqlState;
use crate::keys::key_type::KeyType;

/// The type as which the values of a column are compared.
#[derive(Clone, Copy)]
pub struct ComparedAs {
    pub key_type: KeyType,
    /// The type in a cast. Integers of all sizes can be compared with each other, also by indexes.
    pub cast: &'static str,
}

impl ComparedAs {
    /// Returns it by the name of the column's type, or None if keys have no such type.
    pub fn by_name(name: &str) -> Option<ComparedAs> {
        let (key_type, cast) = match name.strip_prefix("pg_catalog.")? {
            "int2" | "int4" | "int8" => (KeyType::BigInt, "pg_catalog.int8"),
            "numeric" => (KeyType::Numeric, "pg_catalog.\"numeric\""),
            "text" => (KeyType::Text, "pg_catalog.text"),
            "varchar" => (KeyType::VarChar, "pg_catalog.\"varchar\""),
            "bpchar" => (KeyType::Char, "pg_catalog.bpchar"),
            "uuid" => (KeyType::Uuid, "pg_catalog.uuid"),
            _ => return None,
        };
        Some(ComparedAs { key_type, cast })
    }

    /// Whether a row may have the value: a cast of any other value would be an error.
    pub fn may_have(self, value: &str) -> bool {
        self.key_type.of_value(value).is_some()
    }
}

/// Refuses a table whose columns have types by now with other values than the lookup index's.
pub fn require(lookup: &Lookup, shape: &LookupShape, watched: &WatchedColumn, shard: &Shard) -> Result<()> {
    let columns = [
        (&watched.column, &shape.key_type, lookup.key_type),
        (&watched.shard_by, &shape.owner_type, lookup.owner_type),
    ];
    for (column, name, wanted) in columns {
        if !ComparedAs::by_name(name).is_some_and(|found| wanted.takes(found.key_type, true)) {
            let (is, wanted) = (name.trim_start_matches("pg_catalog."), wanted.as_str());
            return Err(SplitError::failed(
                SqlState::UNSUPPORTED,
                format!(
                    "table {} of shard \"{}\" cannot have a lookup index: column \"{column}\" is of type {is}, and the keys are of type {wanted}",
                    watched.qualified(),
                    shard.shard_key
                ),
                "Change the column's type, or remove the table from the lookup index with shard_table_drop().",
            ));
        }
    }
    Ok(())
}
