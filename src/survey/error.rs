//! The reasons why a survey cannot be made.

use crate::error::{Failure, SqlState};
use crate::remote::quote::literal;
use crate::words::{listed, quoted};

pub fn no_schema(shard: &str, names: &[String]) -> Failure {
    Failure::new(SqlState::parse("3F000"), format!("shard \"{shard}\" has no schema {}", quoted(names)))
        .hint("Leave out namespaces for all schemas of the database, or name some of these.")
}

pub fn empty_list() -> Failure {
    Failure::new(SqlState::INVALID_VALUE, "invalid value for \"namespaces\": it is an empty list")
        .hint("Leave out namespaces for all schemas of the database.")
}

pub fn onto_itself(shard: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("shard \"{shard}\" is both the database and the target"))
        .hint("Name another shard as the target, or leave it out.")
}

pub fn no_directory(keyspace: &str) -> Failure {
    let message = format!("keyspace \"{keyspace}\" is no directory of tenants");
    Failure::new(SqlState::parse("0A000"), message)
        .hint("Name a keyspace of strategy directory, or leave it out.")
}

pub fn not_unclear(name: &str, unclear: &[&str]) -> Failure {
    let message =
        format!("invalid value for \"accept\": there is no table \"{name}\" with a path to a tenant");
    let failure = Failure::new(SqlState::INVALID_VALUE, message);
    if unclear.is_empty() {
        return failure.hint("No table's tenant is unclear: leave out accept.");
    }
    failure.hint(format!("One of: {}.", listed(unclear)))
}

pub fn no_tables(shard: &str) -> Failure {
    Failure::new(SqlState::parse("42P01"), format!("shard \"{shard}\" has no table in these schemas"))
        .hint("Name the schemas of the application's tables with namespaces.")
}

pub fn cannot_read(shard: &str, mover: &str) -> Failure {
    let message = format!("role \"{mover}\" may read no table of shard \"{shard}\"");
    Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .hint("Make it a member of the role that owns the tables, or grant it USAGE on their schemas and SELECT on them.")
}

pub fn no_column(shard: &str, column: &str, similar: &[String]) -> Failure {
    let message = format!("no table of shard \"{shard}\" has a column \"{column}\"");
    let failure = Failure::new(SqlState::parse("42703"), message);
    let failure = match similar {
        [] => failure,
        names => failure.detail(format!("There are columns {}.", quoted(names))),
    };
    failure.hint(format!("SELECT * FROM shard_survey({}) proposes columns.", literal(shard)))
}

pub fn only_in_views(shard: &str, column: &str, views: &[String]) -> Failure {
    let message = format!("only views of shard \"{shard}\" have a column \"{column}\"");
    Failure::new(SqlState::parse("42809"), message)
        .detail(format!("Views: {}.", listed(views)))
        .hint("Name the column of the tables below the views.")
}

/// `found`: each type with some of the tables that have it.
pub fn two_types(shard: &str, column: &str, found: &[(String, Vec<String>)]) -> Failure {
    let types = listed(found.iter().map(|(name, _)| name));
    let message = format!("column \"{column}\" has several types in tables of shard \"{shard}\": {types}");
    let of = |(name, tables): &(String, Vec<String>)| format!("{name}: {}", listed(tables));
    Failure::new(SqlState::parse("42804"), message)
        .detail(found.iter().map(of).collect::<Vec<_>>().join("; "))
        .hint("Give it one type in all tables, or leave out schemas with namespaces.")
}

pub fn no_key_type(column: &str, type_name: &str) -> Failure {
    let message = format!("column \"{column}\" is of type {type_name}, which cannot hold a key");
    Failure::new(SqlState::parse("42804"), message)
        .hint("A key is a number, a text, a uuid or an enum. Name another column.")
}
