//! The reasons why a shard cannot be guarded, or cannot lose its guard.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum GuardError {
    #[error("shard \"{shard}\" is of kind \"{kind}\", which holds no rows")]
    HoldsNoRows { shard: String, kind: String },
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("shard \"{shard}\" has no guard of keyspace \"{keyspace}\"")]
    None { shard: String, keyspace: String },
    #[error("the last step of the guard is not committed")]
    NotCommitted,
    #[error("the guard of keyspace \"{keyspace}\" is missing on shard \"{shard}\"")]
    Gone { shard: String, keyspace: String },
    #[error(
        "the guard of keyspace \"{keyspace}\" on shard \"{shard}\" is being {} by another call",
        if *removes { "installed" } else { "removed" }
    )]
    Opposed { shard: String, keyspace: String, removes: bool },
    #[error("shard \"{shard}\" already has this guard, as shard \"{as_shard}\"")]
    OtherName { shard: String, as_shard: String },
    #[error(
        "table {table} of shard \"{shard}\" is also a table of shard \"{other}\", whose keys would be refused there"
    )]
    Shared { table: String, shard: String, other: String },
    #[error("table {table} of shard \"{shard}\" {what}")]
    Table { shard: String, table: String, what: String },
    #[error(
        "table {table} of shard \"{shard}\" has keys of type {key_type}, and the guard's list has another type"
    )]
    OtherList { shard: String, table: String, key_type: String },
}

impl From<GuardError> for Failure {
    fn from(error: GuardError) -> Failure {
        let (state, hint) = match &error {
            GuardError::HoldsNoRows { .. } => {
                (SqlState::INVALID_VALUE, "Only shards of kind \"postgres\" hold rows of tables.")
            }
            GuardError::NoTables(_) => (SqlState::NOT_IN_STATE, "shard_table_add() adds tables."),
            GuardError::None { .. } => (SqlState::UNDEFINED_OBJECT, "shard_guards() lists the guards."),
            GuardError::NotCommitted => {
                (SqlState::NOT_IN_STATE, "It is a step of shard_guard_install() and shard_guard_remove().")
            }
            GuardError::Gone { .. } => (
                SqlState::NOT_IN_STATE,
                "Somebody has removed it, or the shard was restored. Install it again.",
            ),
            GuardError::Opposed { .. } => {
                (SqlState::NOT_IN_STATE, "Wait until it ends, then call again. shard_guards() shows it.")
            }
            GuardError::OtherName { .. } => (
                SqlState::NOT_IN_STATE,
                "Both are the same namespace of the same database, so that one guard is enough.",
            ),
            GuardError::Shared { .. } => (
                SqlState::UNSUPPORTED,
                "Add the keyspace's tables without a schema, so that each shard has them in its own namespace.",
            ),
            GuardError::Table { .. } => (
                SqlState::UNSUPPORTED,
                "Fix it, or remove the table from the keyspace with shard_table_drop().",
            ),
            GuardError::OtherList { .. } => (
                SqlState::NOT_IN_STATE,
                "The table has changed meanwhile. shard_guard_install() makes the list again.",
            ),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
