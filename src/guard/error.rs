//! Why a shard is not guarded, or goes on being it.

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
    #[error("the guard of keyspace \"{keyspace}\" is gone from shard \"{shard}\"")]
    Gone { shard: String, keyspace: String },
    #[error(
        "the guard of keyspace \"{keyspace}\" on shard \"{shard}\" is being {} by another call",
        if *removes { "installed" } else { "removed" }
    )]
    Opposed { shard: String, keyspace: String, removes: bool },
    #[error("shard \"{shard}\" is guarded already, as shard \"{as_shard}\"")]
    OtherName { shard: String, as_shard: String },
    #[error(
        "table {table} of shard \"{shard}\" is shard \"{other}\"'s as well, whose keys would be refused there"
    )]
    Shared { table: String, shard: String, other: String },
    #[error("table {table} of shard \"{shard}\" {what}")]
    Table { shard: String, table: String, what: String },
    #[error(
        "table {table} of shard \"{shard}\" has keys of type {key_type}, and the guard's list has keys of another"
    )]
    OtherList { shard: String, table: String, key_type: String },
}

impl From<GuardError> for Failure {
    fn from(error: GuardError) -> Failure {
        let (state, hint) = match &error {
            GuardError::HoldsNoRows { .. } => {
                (SqlState::INVALID_VALUE, "Only shards of kind \"postgres\" hold rows of tables.")
            }
            GuardError::NoTables(_) => {
                (SqlState::NOT_IN_STATE, "shard_table_add() says which tables it has.")
            }
            GuardError::None { .. } => {
                (SqlState::UNDEFINED_OBJECT, "shard_guards() lists those that there are.")
            }
            GuardError::NotCommitted => {
                (SqlState::NOT_IN_STATE, "It is a step of shard_guard_install() and shard_guard_remove().")
            }
            GuardError::Gone { .. } => (
                SqlState::NOT_IN_STATE,
                "Somebody has removed it, or the shard was restored: install it again.",
            ),
            GuardError::Opposed { .. } => (
                SqlState::NOT_IN_STATE,
                "Wait for its end, and call again what is to be; see shard_guards().",
            ),
            GuardError::OtherName { .. } => {
                (SqlState::NOT_IN_STATE, "Both are one namespace of one database: one guard is enough.")
            }
            GuardError::Shared { .. } => (
                SqlState::UNSUPPORTED,
                "Name the keyspace's tables without a schema, so that each shard has them in its own namespace.",
            ),
            GuardError::Table { .. } => (
                SqlState::UNSUPPORTED,
                "Mend it, or take the table out of the keyspace with shard_table_drop().",
            ),
            GuardError::OtherList { .. } => (
                SqlState::NOT_IN_STATE,
                "The table has changed meanwhile: shard_guard_install() makes the list anew.",
            ),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
