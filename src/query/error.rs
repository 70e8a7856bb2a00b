//! Why a query of all shards is refused.

use crate::error::{Failure, SqlState};
use crate::remote::quote::literal;

const DATATYPE_MISMATCH: SqlState = SqlState(*b"42804");
const NEEDS_READER: &str = "Create a role that can only read, and use it as the login.";

pub fn keeps_snapshot(function: &str) -> Failure {
    let message = format!("{function}() cannot run in a transaction that keeps its snapshot");
    Failure::new(SqlState::parse("25001"), message).hint("It needs the current routes. Use READ COMMITTED.")
}

pub fn no_login(role: &str) -> Failure {
    needs_login(role, format!("role \"{role}\" has no login for the shards"))
}

pub fn no_login_for(role: &str, shard: &str) -> Failure {
    needs_login(role, format!("role \"{role}\" has no login for shard \"{shard}\""))
}

fn needs_login(role: &str, message: String) -> Failure {
    let role = literal(role);
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint(format!(
        "As a superuser, SELECT shard_login_set({role}, username => '..') with a role of the shards. That role needs the rights for the statement, and must be neither a superuser nor the mover."
    ))
}

pub fn several_logins(role: &str, names: &str) -> Failure {
    let message = format!("role \"{role}\" has several logins for the shards: {names}");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint("Choose one with SET ROLE.")
}

pub fn no_shard() -> Failure {
    Failure::new(SqlState::INVALID_VALUE, "no shard is named")
        .hint("Without shards => all active shards are asked.")
}

pub fn disabled(shard: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("shard \"{shard}\" is disabled"))
        .hint("shard_set_status() activates it again. Or name other shards.")
}

pub fn is_mover(username: &str, shard: &str) -> Failure {
    let message = format!("\"{username}\" is the mover's role on shard \"{shard}\"");
    Failure::new(SqlState::INVALID_VALUE, message).hint(NEEDS_READER)
}

pub fn other_role(shard: &str, username: &str, found: &str) -> Failure {
    let message = format!("shard \"{shard}\" logged in \"{found}\" instead of \"{username}\"");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint("Check what maps roles on the way there.")
}

pub fn unknown_mover(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\" does not report who its mover is");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(
        "The login must be another role than the mover. Name the mover in the shard's connection string, not in a service.",
    )
}

/// The login has too many rights: `what` it is.
pub fn too_much(shard: &str, username: &str, what: &str) -> Failure {
    let message = format!("login \"{username}\" of shard \"{shard}\" is {what}");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message).hint(NEEDS_READER)
}

pub fn standby_of_shard(shard: &str) -> Failure {
    Failure::new(SqlState::READ_ONLY, format!("shard \"{shard}\" is a standby"))
        .hint("It may not have all rows yet. The shard's connection string should lead to its primary.")
}

pub fn reads_past(shard: &str, what: &str, splits: &str) -> Failure {
    let message = format!("shard \"{shard}\": {what} may return rows that split {splits} has on two shards");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(
        "During a split its tables can be read by their plain names only: not with a schema, nor through a view, partition or function. Query them so, or wait until the split ends.",
    )
}

pub fn restless(tries: u32) -> Failure {
    let message = format!("splits have moved rows between shards {tries} times during the query");
    Failure::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again.")
}

pub fn other_type(shard: &str, column: usize, found: &str, declared: &str) -> Failure {
    let message =
        format!("column {column} of shard \"{shard}\" is of type {found}, and is declared as {declared}");
    Failure::new(DATATYPE_MISMATCH, message)
        .hint("Cast it in the statement, or declare it with the type it has.")
}

pub fn other_count(shard: &str, found: usize, declared: usize) -> Failure {
    let message = format!("shard \"{shard}\" returns {found} columns, and {declared} are declared");
    Failure::new(DATATYPE_MISMATCH, message)
        .hint("Name the columns in the statement. Shards may have different ones.")
}

pub fn other_columns(shard: &str, columns: &str, first: &str, others: &str) -> Failure {
    let message =
        format!("shard \"{shard}\" returns the columns {columns}, and shard \"{first}\" returns {others}");
    Failure::new(DATATYPE_MISMATCH, message).hint("Name the columns in the statement instead of *.")
}

pub fn no_order(shard: &str, column: &str) -> Failure {
    let message =
        format!("column \"{column}\" of shard \"{shard}\" has a type that not all shards sort alike");
    Failure::new(DATATYPE_MISMATCH, message).hint(
        "The order can have numbers, dates, timestamps, uuid, and text or varchar with COLLATE \"C\", of the same type on all shards.",
    )
}

pub fn no_total_order() -> Failure {
    Failure::new(
        SqlState::INVALID_VALUE,
        "the order does not distinguish the last row of the page from the next one",
    )
    .hint(
        "One of them would be on no page. Add columns to the order until no two rows are equal in it, for example the primary key.",
    )
}

pub fn long_page(megabytes: usize) -> Failure {
    let message = format!("the rows of the page are longer than {megabytes} MB");
    Failure::new(SqlState::parse("54000"), message).hint(
        "A page is assembled in the master's memory. Request fewer rows at a time, or select fewer columns.",
    )
}

pub fn no_error_column() -> Failure {
    Failure::new(DATATYPE_MISMATCH, "the last column must be declared as \"shard_error jsonb\"").hint(
        "With on_error => 'report' it is NULL in rows. A shard that has not answered gets a row with the reason.",
    )
}

pub fn unknown_role(role: &str) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("role \"{role}\" does not exist"))
        .hint("It must be a role of this database's server.")
}
