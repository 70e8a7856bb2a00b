//! The reasons why a shard cannot be guarded, or cannot lose its guard.

use crate::error::{Failure, SqlState};

pub fn holds_no_rows(shard: &str, kind: &str) -> Failure {
    let message = format!("shard \"{shard}\" is of kind \"{kind}\", which holds no rows");
    Failure::new(SqlState::INVALID_VALUE, message)
        .hint("Only shards of kind \"postgres\" hold rows of tables.")
}

pub fn no_guard(shard: &str, keyspace: &str) -> Failure {
    let message = format!("shard \"{shard}\" has no guard of keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint("shard_guards() lists the guards.")
}

pub fn not_committed() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "the last step of the guard is not committed")
        .hint("It is a step of shard_guard_install() and shard_guard_remove().")
}

/// The guard was there in an earlier step.
pub fn gone(shard: &str, keyspace: &str) -> Failure {
    let message = format!("the guard of keyspace \"{keyspace}\" is missing on shard \"{shard}\"");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Somebody has removed it, or the shard was restored. Install it again.")
}

/// Another call does the opposite of this one, which `removes` the guard or installs it.
pub fn opposed(shard: &str, keyspace: &str, removes: bool) -> Failure {
    let done = if removes { "installed" } else { "removed" };
    let message =
        format!("the guard of keyspace \"{keyspace}\" on shard \"{shard}\" is being {done} by another call");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Wait until it ends, then call again. shard_guards() shows it.")
}

pub fn other_name(shard: &str, as_shard: &str) -> Failure {
    let message = format!("shard \"{shard}\" already has this guard, as shard \"{as_shard}\"");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Both are the same namespace of the same database, so that one guard is enough.")
}

pub fn shared_table(table: &str, shard: &str, other: &str) -> Failure {
    let message = format!(
        "table {table} of shard \"{shard}\" is also a table of shard \"{other}\", whose keys would be refused there"
    );
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("Add the keyspace's tables without a schema, so that each shard has them in its own namespace.")
}

/// What is wrong with the table continues a sentence that begins with it.
pub fn unfit_table(shard: &str, table: &str, what: &str) -> Failure {
    Failure::new(SqlState::UNSUPPORTED, format!("table {table} of shard \"{shard}\" {what}"))
        .hint("Fix it, or remove the table from the keyspace with shard_table_drop().")
}

pub fn other_list(shard: &str, table: &str, key_type: &str) -> Failure {
    let message = format!(
        "table {table} of shard \"{shard}\" has keys of type {key_type}, and the guard's list has another type"
    );
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("The table has changed meanwhile. shard_guard_install() makes the list again.")
}
