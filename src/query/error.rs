//! Why a question to all shards is not asked.

use crate::error::{Failure, SqlState};
use crate::remote::quote::literal;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum QueryError {
    #[error("cannot execute {0}() on a standby")]
    Standby(&'static str),
    #[error("cannot execute {0}() within a security-restricted operation")]
    Restricted(&'static str),
    #[error("{0}() cannot run in a transaction that keeps its snapshot")]
    KeepsSnapshot(&'static str),
    #[error("role \"{0}\" has no login for the shards")]
    NoLogin(String),
    #[error("role \"{0}\" has no login for shard \"{1}\"")]
    NoLoginFor(String, String),
    #[error("role \"{role}\" has several logins for the shards: {names}")]
    SeveralLogins { role: String, names: String },
    #[error("no shard is named")]
    NoShard,
    #[error("shard \"{0}\" is disabled")]
    Disabled(String),
    #[error("\"{username}\" is the mover's role on shard \"{shard}\"")]
    IsMover { username: String, shard: String },
    #[error("shard \"{shard}\" has let in \"{found}\" and not \"{username}\"")]
    OtherRole { shard: String, username: String, found: String },
    #[error("shard \"{0}\" does not say who its mover is")]
    UnknownMover(String),
    #[error("login \"{username}\" of shard \"{shard}\" is {what}")]
    TooMuch { shard: String, username: String, what: String },
    #[error("shard \"{0}\" is a standby")]
    StandbyOfShard(String),
    #[error("shard \"{shard}\": {what} may give rows that split {splits} has between two shards")]
    ReadsPast { shard: String, what: String, splits: String },
    #[error("splits have changed which shard has which rows {0} times while the shards were asked")]
    Restless(u32),
    #[error("column {column} of shard \"{shard}\" is of type {found}, and is declared as {declared}")]
    OtherType { shard: String, column: usize, found: String, declared: String },
    #[error("shard \"{shard}\" gives {found} columns, and {declared} are declared")]
    OtherCount { shard: String, found: usize, declared: usize },
    #[error("shard \"{shard}\" gives the columns {columns}, and shard \"{first}\" gives {others}")]
    OtherColumns { shard: String, columns: String, first: String, others: String },
    #[error("column \"{column}\" of shard \"{shard}\" is of no type by which all shards order alike")]
    NoOrder { shard: String, column: String },
    #[error("the order does not tell the last row of the page from the next one")]
    NoTotalOrder,
    #[error("the rows of the page are longer than {0} MB")]
    LongPage(usize),
    #[error("the last column has to be declared as \"shard_error jsonb\"")]
    NoErrorColumn,
    #[error("role \"{0}\" does not exist")]
    UnknownRole(String),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Failure {
        use QueryError as E;
        let (state, hint) = match &error {
            E::Standby(_) => (SqlState::READ_ONLY, "Run it on the primary."),
            E::Restricted(_) => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                "Call it by itself, not in what an index or a materialized view computes.",
            ),
            E::KeepsSnapshot(_) => (
                SqlState::parse("25001"),
                "It has to see which shard has which rows by now: use READ COMMITTED.",
            ),
            E::NoLogin(role) | E::NoLoginFor(role, _) => {
                let role = literal(role);
                let hint = format!(
                    "As a superuser, SELECT shard_login_set({role}, username => '..') with a role of the shards that may do there what is asked, and is neither a superuser nor the mover."
                );
                return Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, error.to_string()).hint(hint);
            }
            E::SeveralLogins { .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, "Say which one is meant with SET ROLE.")
            }
            E::NoShard => (SqlState::INVALID_VALUE, "Without shards => all active ones are asked."),
            E::Disabled(_) => {
                (SqlState::NOT_IN_STATE, "shard_set_status() makes it active again; or name other shards.")
            }
            E::IsMover { .. } => {
                (SqlState::INVALID_VALUE, "Make a role that may only read, and use it as the login.")
            }
            E::UnknownMover(_) => (
                SqlState::NOT_IN_STATE,
                "Whoever asks it must be somebody else: name the user in its connection string, not in a service.",
            ),
            E::TooMuch { .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, "Make a role that may only read, and use it as the login.")
            }
            E::OtherRole { .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, "Look at what maps roles on the way there.")
            }
            E::StandbyOfShard(_) => (
                SqlState::parse("25006"),
                "It may not have all rows yet: let the shard's connection string lead to its primary.",
            ),
            E::ReadsPast { .. } => (
                SqlState::NOT_IN_STATE,
                "While a split is under way tables of its keyspace are read by their plain names, without a schema, and by no view, partition or function that reads them. Ask so, or wait for the end of the split.",
            ),
            E::Restless(_) => (SqlState::SERIALIZATION_FAILURE, "Try again."),
            E::OtherType { .. } => {
                (SqlState::parse("42804"), "Cast it in the statement, or declare it as it is.")
            }
            E::OtherCount { .. } => {
                (SqlState::parse("42804"), "Name the columns in the statement: shards may have others.")
            }
            E::OtherColumns { .. } => {
                (SqlState::parse("42804"), "Name the columns in the statement in place of *.")
            }
            E::NoOrder { .. } => (
                SqlState::parse("42804"),
                "Numbers, dates, timestamps, uuid, and text or varchar with COLLATE \"C\" in the order; the same type on all shards.",
            ),
            E::NoTotalOrder => (
                SqlState::INVALID_VALUE,
                "One of them would be on no page: add columns to the order until no two rows are equal in it, the primary key at last.",
            ),
            E::LongPage(_) => (
                SqlState::parse("54000"),
                "A page is put together in the master's memory: ask for fewer rows at a time, or select fewer columns.",
            ),
            E::NoErrorColumn => (
                SqlState::parse("42804"),
                "With on_error => 'report' it is NULL in rows, and says in a row of its own why a shard has not answered.",
            ),
            E::UnknownRole(_) => (SqlState::UNDEFINED_OBJECT, "It is a role of this database's server."),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
