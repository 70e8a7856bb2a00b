//! The reasons why a foreign table cannot be read, or created.

use crate::error::{Failure, SqlState};

pub fn no_plan() -> Failure {
    Failure::new(SqlState::INTERNAL, "the plan of a foreign scan cannot be read")
        .hint("Plan the query again with the library that runs it.")
}

pub fn no_level() -> Failure {
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to query all shards").hint(
        "A role that reads the table needs the level \"client\" (shard_grant()), and a login (shard_login_set()).",
    )
}

pub fn not_in_keyspace(table: &str, keyspace: &str) -> Failure {
    let message = format!("table \"{table}\" is not in keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(
        "shard_tables() lists its tables. Drop the foreign table, or add the table with shard_table_add().",
    )
}

pub fn unknown_option(option: &str) -> Failure {
    Failure::new(SqlState::parse("HV00D"), format!("invalid option \"{option}\""))
        .hint("A foreign table has the options keyspace, table_name and timeout.")
}

pub fn missing_option(option: &str) -> Failure {
    Failure::new(SqlState::parse("HV00J"), format!("option \"{option}\" is missing"))
        .hint("shard_import() creates foreign tables with all they need.")
}

pub fn invalid_timeout() -> Failure {
    Failure::new(SqlState::INVALID_VALUE, "invalid value for option \"timeout\"")
        .hint("It is an interval, longer than zero: '1 min'.")
}

pub fn not_on_shard(shard: &str, table: &str) -> Failure {
    let message = format!("shard \"{shard}\" has no table \"{table}\" that its login may read");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(
        "shard_schema_copy() creates a shard's tables. Grant the login SELECT on them, and USAGE on their schema.",
    )
}

pub fn same_name(one: &str, other: &str) -> Failure {
    Failure::new(SqlState::UNSUPPORTED, format!("tables \"{one}\" and \"{other}\" have the same name"))
        .hint("One schema cannot have both. Create the foreign table of one of them by hand.")
}

pub fn name_taken(relation: &str) -> Failure {
    Failure::new(SqlState::DUPLICATE_OBJECT, format!("relation \"{relation}\" already exists"))
        .hint("Name another schema, or rename the relation.")
}

pub fn unreadable(shard: &str) -> Failure {
    Failure::new(SqlState::INTERNAL, format!("shard \"{shard}\" reports no columns of the table"))
        .hint("Find out what answers at its address.")
}

pub fn no_active_shard() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "no shard is active").hint("shard_add() adds one.")
}
