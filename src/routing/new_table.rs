//! A table that is being added: what its shards have reported, for the operator.

use super::{error, name_list};
use crate::agent::new_table::SaidByShards;
use crate::catalog::keyspace;
use crate::catalog::table_policy::TableName;
use crate::error::{Failure, SqlState, notice, warn};
use crate::remote::quote::literal;

pub use crate::agent::new_table::look;

/// The SQLSTATE if another kind of object has the name, or the column is missing.
const WRONG_OBJECT: SqlState = SqlState(*b"42809");

/// Refuses a table that no split could ever move.
pub fn require(said: &SaidByShards, table: &TableName, column: Option<&str>) -> Result<(), Failure> {
    match said {
        SaidByShards::Other { shard, kind } => {
            let text = format!("\"{}\" is {kind} on shard \"{shard}\"", table.quoted());
            Err(Failure::new(WRONG_OBJECT, text)
                .hint("Only rows of tables are sharded. Name the table; for partitions, name their root."))
        }
        SaidByShards::NoColumn { .. } => {
            Err(error::unknown_column(&table.quoted(), column.unwrap_or_default()))
        }
        SaidByShards::Fits | SaidByShards::Missing { .. } | SaidByShards::Nothing => Ok(()),
    }
}

/// Warns if no shard has the table: it may be created later, but the name may also be wrong.
pub fn tell(said: &SaidByShards, table: &TableName, keyspace: &str) {
    let table = table.quoted();
    match said {
        SaidByShards::Missing { asked } => {
            let arguments = if keyspace == keyspace::DEFAULT {
                literal(&table)
            } else {
                format!("{}, {}", literal(&table), literal(keyspace))
            };
            let shards = name_list(asked.iter().map(String::as_str));
            warn(
                format!("table \"{table}\" is on none of the shards that were asked: {shards}"),
                format!(
                    "No split can begin before the table exists. If the name is wrong: SELECT shard_table_drop({arguments})."
                ),
            );
        }
        SaidByShards::Nothing => {
            notice(
                format!("no shard could be asked whether it has table \"{table}\""),
                "Before a split, shard_split_check() reports which tables are missing.",
            );
        }
        SaidByShards::Fits | SaidByShards::Other { .. } | SaidByShards::NoColumn { .. } => {}
    }
}
