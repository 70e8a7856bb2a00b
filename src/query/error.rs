//! Why a query of all shards is refused.

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
    #[error("shard \"{shard}\" logged in \"{found}\" instead of \"{username}\"")]
    OtherRole { shard: String, username: String, found: String },
    #[error("shard \"{0}\" does not report who its mover is")]
    UnknownMover(String),
    #[error("login \"{username}\" of shard \"{shard}\" is {what}")]
    TooMuch { shard: String, username: String, what: String },
    #[error("shard \"{0}\" is a standby")]
    StandbyOfShard(String),
    #[error("shard \"{shard}\": {what} may return rows that split {splits} has on two shards")]
    ReadsPast { shard: String, what: String, splits: String },
    #[error("splits have moved rows between shards {0} times during the query")]
    Restless(u32),
    #[error("column {column} of shard \"{shard}\" is of type {found}, and is declared as {declared}")]
    OtherType { shard: String, column: usize, found: String, declared: String },
    #[error("shard \"{shard}\" returns {found} columns, and {declared} are declared")]
    OtherCount { shard: String, found: usize, declared: usize },
    #[error("shard \"{shard}\" returns the columns {columns}, and shard \"{first}\" returns {others}")]
    OtherColumns { shard: String, columns: String, first: String, others: String },
    #[error("column \"{column}\" of shard \"{shard}\" has a type that not all shards sort alike")]
    NoOrder { shard: String, column: String },
    #[error("the order does not distinguish the last row of the page from the next one")]
    NoTotalOrder,
    #[error("the rows of the page are longer than {0} MB")]
    LongPage(usize),
    #[error("the last column must be declared as \"shard_error jsonb\"")]
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
                "Call it directly, not in an expression of an index or a materialized view.",
            ),
            E::KeepsSnapshot(_) => {
                (SqlState::parse("25001"), "It needs the current routes. Use READ COMMITTED.")
            }
            E::NoLogin(role) | E::NoLoginFor(role, _) => {
                let role = literal(role);
                let hint = format!(
                    "As a superuser, SELECT shard_login_set({role}, username => '..') with a role of the shards. That role needs the rights for the statement, and must be neither a superuser nor the mover."
                );
                return Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, error.to_string()).hint(hint);
            }
            E::SeveralLogins { .. } => (SqlState::INSUFFICIENT_PRIVILEGE, "Choose one with SET ROLE."),
            E::NoShard => (SqlState::INVALID_VALUE, "Without shards => all active shards are asked."),
            E::Disabled(_) => {
                (SqlState::NOT_IN_STATE, "shard_set_status() activates it again. Or name other shards.")
            }
            E::IsMover { .. } => {
                (SqlState::INVALID_VALUE, "Create a role that can only read, and use it as the login.")
            }
            E::UnknownMover(_) => (
                SqlState::NOT_IN_STATE,
                "The login must be another role than the mover. Name the mover in the shard's connection string, not in a service.",
            ),
            E::TooMuch { .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                "Create a role that can only read, and use it as the login.",
            ),
            E::OtherRole { .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, "Check what maps roles on the way there.")
            }
            E::StandbyOfShard(_) => (
                SqlState::parse("25006"),
                "It may not have all rows yet. The shard's connection string should lead to its primary.",
            ),
            E::ReadsPast { .. } => (
                SqlState::NOT_IN_STATE,
                "During a split its tables can be read by their plain names only: not with a schema, nor through a view, partition or function. Query them so, or wait until the split ends.",
            ),
            E::Restless(_) => (SqlState::SERIALIZATION_FAILURE, "Try again."),
            E::OtherType { .. } => {
                (SqlState::parse("42804"), "Cast it in the statement, or declare it with the type it has.")
            }
            E::OtherCount { .. } => (
                SqlState::parse("42804"),
                "Name the columns in the statement. Shards may have different ones.",
            ),
            E::OtherColumns { .. } => {
                (SqlState::parse("42804"), "Name the columns in the statement instead of *.")
            }
            E::NoOrder { .. } => (
                SqlState::parse("42804"),
                "The order can have numbers, dates, timestamps, uuid, and text or varchar with COLLATE \"C\", of the same type on all shards.",
            ),
            E::NoTotalOrder => (
                SqlState::INVALID_VALUE,
                "One of them would be on no page. Add columns to the order until no two rows are equal in it, for example the primary key.",
            ),
            E::LongPage(_) => (
                SqlState::parse("54000"),
                "A page is assembled in the master's memory. Request fewer rows at a time, or select fewer columns.",
            ),
            E::NoErrorColumn => (
                SqlState::parse("42804"),
                "With on_error => 'report' it is NULL in rows. A shard that has not answered gets a row with the reason.",
            ),
            E::UnknownRole(_) => (SqlState::UNDEFINED_OBJECT, "It must be a role of this database's server."),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}
