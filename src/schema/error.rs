//! The reasons why schemas cannot be compared, or created.

use crate::error::{Failure, SqlState};

pub fn not_a_table_name(name: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("\"{name}\" is not the name of a table"))
        .hint("A table is given as name or schema.name.")
}

pub fn named_twice(shard: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("\"{shard}\" is named twice"))
        .hint("Name two different shards.")
}

pub fn lacks_table(shard: &str, table: &str) -> Failure {
    Failure::new(SqlState::parse("42P01"), format!("shard \"{shard}\" lacks {table}"))
        .hint("Create it there, or remove it from the keyspace with shard_table_drop().")
}

/// Has the first problem in its message, and all of them in its detail.
pub fn cannot_be_created([from, to]: [&str; 2], first: &str, all: &[String]) -> Failure {
    let message = format!("the tables of shard \"{from}\" cannot be created on shard \"{to}\": {first}");
    Failure::new(SqlState::NOT_IN_STATE, message).detail(all.join("; ")).hint(
        "Nothing was created. shard_schema_diff() shows the differences. shard_schema_copy() creates what is missing, and changes nothing that exists.",
    )
}

/// `there` and `here` are the definitions of the object on the two shards.
pub fn created_differently([from, to]: [&str; 2], object: &str, [there, here]: [&str; 2]) -> Failure {
    let message = format!("{object} was created on shard \"{to}\" with a difference from shard \"{from}\"");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .detail(format!("There: {there}; here: {here}"))
        .hint("Nothing was created. Check which setting of its server or of the login's role is different.")
}
