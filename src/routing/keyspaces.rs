//! Keyspaces and the tables in them.

use crate::catalog::keyspace::{self, Locked};
use crate::catalog::table_policy::{self, Column, TableName};
use crate::catalog::{in_use, routing};
use crate::error::Failure;
use crate::routing::RoutingError;
use crate::routing::key_type::KeyType;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Longest name of a keyspace, in bytes: it must fit into an event.
const MAX_NAME: usize = 63;

/// What the strategies that come later take; a directory takes neither.
pub struct StrategyArguments {
    pub buckets: Option<i32>,
    pub shards: Option<Vec<Option<String>>>,
}

pub fn add(
    name: &str,
    strategy: &str,
    key_type: pg_sys::Oid,
    rest: StrategyArguments,
) -> Result<(), Failure> {
    if name.is_empty() || name.len() > MAX_NAME {
        let problem = format!("a name has 1 to {MAX_NAME} bytes");
        return Err(RoutingError::Invalid { argument: "keyspace", problem }.into());
    }
    match strategy {
        "directory" => {}
        "hash" | "range" => return Err(RoutingError::StrategyNotYet(strategy.into()).into()),
        other => {
            let problem = format!("\"{other}\" is not one of \"directory\", \"hash\", \"range\"");
            return Err(RoutingError::Invalid { argument: "strategy", problem }.into());
        }
    }
    let not_for_directory = |argument| {
        Failure::from(RoutingError::Invalid {
            argument,
            problem: "a keyspace with the strategy \"directory\" has none".into(),
        })
    };
    if rest.buckets.is_some() {
        return Err(not_for_directory("buckets"));
    }
    if rest.shards.is_some() {
        return Err(not_for_directory("shards"));
    }
    let key_type = KeyType::from_oid(key_type)?;
    if keyspace::find(name).is_ok() || !keyspace::insert(name, key_type) {
        return Err(RoutingError::KeyspaceExists(name.into()).into());
    }
    Ok(())
}

pub fn drop(name: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(name)?;
    if name == keyspace::DEFAULT {
        return Err(RoutingError::DefaultKeyspace.into());
    }
    check_no_split(&keyspace)?;
    let in_use = |by: String| Failure::from(RoutingError::KeyspaceInUse { keyspace: name.into(), by });
    if let Some(policy) = table_policy::list(name).first() {
        return Err(in_use(format!("table \"{}\" is in it", policy.table_name))
            .hint("Take its tables out with shard_table_drop()."));
    }
    if let Some(key) = routing::any_current_key(name) {
        return Err(in_use(format!("key \"{key}\" is assigned in it"))
            .hint("Take its keys out with shard_unassign()."));
    }
    if keyspace::has_splits(&keyspace) {
        return Err(in_use("it has splits, which are kept for audit".into()));
    }
    keyspace::delete(&keyspace);
    Ok(())
}

fn check_no_split(keyspace: &Locked) -> Result<(), RoutingError> {
    match in_use::split_of_keyspace(&keyspace.name) {
        Some(split) => Err(RoutingError::KeyspaceInSplit { keyspace: keyspace.name.clone(), split }),
        None => Ok(()),
    }
}

fn parse_table(text: &str) -> Result<TableName, RoutingError> {
    TableName::parse(text).ok_or_else(|| RoutingError::Invalid {
        argument: "table_name",
        problem: format!("\"{text}\" is neither a name nor schema.name"),
    })
}

pub fn table_add(
    table: &str,
    shard_by: &str,
    keyspace: &str,
    key_type: Option<pg_sys::Oid>,
) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    let table = parse_table(table)?;
    let column = table_policy::parse_column(shard_by);
    if column.is_empty() {
        let problem = "a column's name is needed".into();
        return Err(RoutingError::Invalid { argument: "shard_by", problem }.into());
    }
    check_no_split(&keyspace)?;
    let column_type = match table_policy::column_here(&table, &column) {
        Column::TableUnknown => None,
        Column::Missing => {
            return Err(RoutingError::UnknownColumn { column, table: table.quoted() }.into());
        }
        Column::Type(oid) => Some(oid),
    };
    settle_key_type(&keyspace, key_type, column_type)?;
    if !table_policy::insert(&keyspace, &table, &column) {
        let (table, keyspace) = (table.quoted(), keyspace.name.clone());
        return Err(RoutingError::TableExists { table, keyspace }.into());
    }
    Ok(())
}

/// The type that the caller says wins over the column's; the first that is known is the
/// keyspace's for good. Where none is known (the table is on other servers alone) keys
/// are taken as text, and a later table may still say better.
fn settle_key_type(
    keyspace: &Locked,
    given: Option<pg_sys::Oid>,
    column: Option<pg_sys::Oid>,
) -> Result<(), RoutingError> {
    let given = given.map(KeyType::from_oid).transpose()?;
    let column = match given {
        None => column.map(KeyType::from_oid).transpose()?,
        Some(_) => None,
    };
    let Some(wanted) = given.or(column) else {
        if keyspace.key_type.is_none() {
            notice_unknown_type();
        }
        return Ok(());
    };
    match keyspace.key_type {
        None => {
            check_keys_canonical(keyspace, wanted)?;
            keyspace::set_key_type(keyspace, wanted);
            Ok(())
        }
        Some(is) if is.same_family(wanted) => Ok(()),
        Some(is) if given.is_none() && is.is_text() => {
            let message = format!(
                "the shard-by column is of type {}, but keys of keyspace \"{}\" are of type {}",
                wanted.name(),
                keyspace.name,
                is.name()
            );
            ereport!(PgLogLevel::WARNING, PgSqlErrorCode::ERRCODE_WARNING, message);
            Ok(())
        }
        Some(is) => Err(RoutingError::OtherKeyType {
            keyspace: keyspace.name.clone(),
            is: is.name(),
            wanted: wanted.name(),
        }),
    }
}

fn notice_unknown_type() {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        "the table is not in this database: keys are taken as text",
        "shardmaster",
    )
    .set_hint(
        "Where the shard-by column is not text, say so with key_type, for example key_type => 'bigint'.",
    )
    .report(PgLogLevel::NOTICE);
}

/// Keys that were assigned while they were text must be in the form that the type gives.
fn check_keys_canonical(keyspace: &Locked, key_type: KeyType) -> Result<(), RoutingError> {
    if key_type == KeyType::Text {
        return Ok(());
    }
    for key in routing::current_keys(&keyspace.name) {
        let canonical = key_type.canonical(&key).into_owned();
        if canonical != key {
            let (keyspace, key_type) = (keyspace.name.clone(), key_type.name());
            return Err(RoutingError::KeyNotCanonical { key, keyspace, key_type, canonical });
        }
    }
    Ok(())
}

pub fn table_drop(table: &str, keyspace: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    let table = parse_table(table)?;
    check_no_split(&keyspace)?;
    if !table_policy::delete(&keyspace, &table) {
        let (table, keyspace) = (table.quoted(), keyspace.name.clone());
        return Err(RoutingError::UnknownTable { table, keyspace }.into());
    }
    Ok(())
}
