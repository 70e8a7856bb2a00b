//! The reasons why schemas cannot be compared, or created.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SchemaError {
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("\"{0}\" is not the name of a table")]
    NoTableName(String),
    #[error("\"{0}\" is named twice")]
    OneShard(String),
    #[error("shard \"{shard}\" lacks {table}")]
    NoSuchTable { shard: String, table: String },
    #[error("the tables of shard \"{from}\" cannot be created on shard \"{to}\": {first}")]
    Problems { from: String, to: String, first: String, all: Vec<String> },
    #[error("{object} was created on shard \"{to}\" with a difference from shard \"{from}\"")]
    Otherwise { from: String, to: String, object: String, there: String, here: String },
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Failure {
        use SchemaError as E;
        let (state, hint) = match &error {
            E::NoTables(_) => (SqlState::NOT_IN_STATE, "shard_table_add() adds tables."),
            E::NoTableName(_) => (SqlState::INVALID_VALUE, "A table is given as name or schema.name."),
            E::OneShard(_) => (SqlState::INVALID_VALUE, "Name two different shards."),
            E::NoSuchTable { .. } => (
                SqlState::parse("42P01"),
                "Create it there, or remove it from the keyspace with shard_table_drop().",
            ),
            E::Problems { .. } => (
                SqlState::NOT_IN_STATE,
                "Nothing was created. shard_schema_diff() shows the differences. shard_schema_copy() creates what is missing, and changes nothing that exists.",
            ),
            E::Otherwise { .. } => (
                SqlState::NOT_IN_STATE,
                "Nothing was created. Check which setting of its server or of the login's role is different.",
            ),
        };
        let detail = match &error {
            E::Problems { all, .. } => Some(all.join("; ")),
            E::Otherwise { there, here, .. } => Some(format!("There: {there}; here: {here}")),
            _ => None,
        };
        let failure = Failure::new(state, error.to_string()).hint(hint);
        match detail {
            Some(detail) => failure.detail(detail),
            None => failure,
        }
    }
}
