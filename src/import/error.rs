//! The reasons why a foreign table cannot be read, or created.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ImportError {
    #[error("the plan of a foreign scan cannot be read")]
    NoPlan,
    #[error("permission denied to query all shards")]
    NoLevel,
    #[error("table \"{table}\" is not in keyspace \"{keyspace}\"")]
    NoTable { table: String, keyspace: String },
    #[error("invalid option \"{0}\"")]
    UnknownOption(String),
    #[error("option \"{0}\" is missing")]
    MissingOption(&'static str),
    #[error("invalid value for option \"{0}\"")]
    InvalidOption(&'static str),
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("shard \"{shard}\" has no table \"{table}\" that its login may read")]
    NotThere { shard: String, table: String },
    #[error("tables \"{0}\" and \"{1}\" have the same name")]
    SameName(String, String),
    #[error("relation \"{0}\" already exists")]
    Taken(String),
    #[error("shard \"{0}\" reports no columns of the table")]
    Unreadable(String),
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        use ImportError as E;
        let (state, hint) = match &error {
            E::NoLevel => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                "A role that reads the table needs the level \"client\" (shard_grant()), and a login (shard_login_set()).",
            ),
            E::NoTable { .. } => (
                SqlState::UNDEFINED_OBJECT,
                "shard_tables() lists its tables. Drop the foreign table, or add the table with shard_table_add().",
            ),
            E::UnknownOption(_) => (
                SqlState::parse("HV00D"),
                "A foreign table has the options keyspace, table_name and timeout.",
            ),
            E::MissingOption(_) => {
                (SqlState::parse("HV00J"), "shard_import() creates foreign tables with all they need.")
            }
            E::InvalidOption(_) => (SqlState::INVALID_VALUE, "It is an interval, longer than zero: '1 min'."),
            E::NoTables(_) => (SqlState::NOT_IN_STATE, "shard_table_add() adds tables."),
            E::NotThere { .. } => (
                SqlState::UNDEFINED_OBJECT,
                "shard_schema_copy() creates a shard's tables. Grant the login SELECT on them, and USAGE on their schema.",
            ),
            E::SameName(..) => (
                SqlState::UNSUPPORTED,
                "One schema cannot have both. Create the foreign table of one of them by hand.",
            ),
            E::Taken(_) => (SqlState::DUPLICATE_OBJECT, "Name another schema, or rename the relation."),
            E::NoPlan => (SqlState::INTERNAL, "Plan the query again with the library that runs it."),
            E::Unreadable(_) => (SqlState::INTERNAL, "Find out what answers at its address."),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
