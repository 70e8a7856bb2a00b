//! Keyspaces and their tables.

use super::on_primary;
use crate::api::regtype::RegType;
use crate::catalog::caller::Caller;
use crate::catalog::table_policy::{self, ListedTable};
use crate::catalog::{keyspace, lookup};
use crate::error::{Failure, required};
use crate::lookups;
use crate::routing::error;
use crate::routing::keyspaces::{self, NewTable, StrategyArguments};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_keyspace_add(
    keyspace: Option<String>,
    strategy: Option<String>,
    buckets: default!(Option<i32>, "NULL"),
    key_type: default!(Option<RegType>, "'text'"),
    shards: default!(Option<Vec<Option<String>>>, "NULL"),
    of: default!(Option<String>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_keyspace_add")?;
    let keyspace = required(keyspace, "keyspace")?;
    let strategy = required(strategy, "strategy")?;
    let key_type = required(key_type, "key_type")?.0;
    let rest = StrategyArguments { buckets, shards };
    if strategy == lookup::STRATEGY {
        return Ok(lookups::add(&keyspace, of.as_deref(), key_type, &rest)?);
    }
    if of.is_some() {
        let problem = "only a keyspace with the strategy \"lookup\" leads to another one";
        return Err(error::invalid("of", problem).into());
    }
    Ok(keyspaces::add(&keyspace, &strategy, key_type, rest)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_keyspace_drop(keyspace: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_keyspace_drop")?;
    let keyspace = required(keyspace, "keyspace")?;
    match lookups::drop(&keyspace)? {
        Some(()) => Ok(()),
        None => Ok(keyspaces::drop(&keyspace)?),
    }
}

/// SECURITY INVOKER: what it does depends on who calls.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_table_add(
    table_name: Option<String>,
    shard_by: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    key_type: default!(Option<RegType>, "NULL"),
    policy: default!(Option<String>, "'sharded'"),
    origin: default!(Option<String>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_table_add")?;
    let table_name = required(table_name, "table_name")?;
    let (keyspace, policy) = (required(keyspace, "keyspace")?, required(policy, "policy")?);
    let new = NewTable {
        name: &table_name,
        shard_by: shard_by.as_deref(),
        keyspace: &keyspace,
        key_type: key_type.map(|t| t.0),
        policy: &policy,
        origin,
    };
    Ok(Caller::as_owner(|caller| match lookups::table_add(&new, caller)? {
        Some(()) => Ok(()),
        None => keyspaces::table_add(&new, caller),
    })?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_table_drop(
    table_name: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<(), ErrorReport> {
    on_primary("shard_table_drop")?;
    let (table_name, keyspace) = (required(table_name, "table_name")?, required(keyspace, "keyspace")?);
    match lookups::table_drop(&table_name, &keyspace)? {
        Some(()) => Ok(()),
        None => Ok(keyspaces::table_drop(&table_name, &keyspace)?),
    }
}

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_tables(
    keyspace: default!(Option<String>, "'default'"),
) -> Result<
    TableIterator<
        'static,
        (name!(table_name, String), name!(shard_by, Option<String>), name!(policy, String)),
    >,
    ErrorReport,
> {
    let keyspace = required(keyspace, "keyspace")?;
    if let Some(lookup) = lookup::find(&keyspace) {
        let row =
            |source: lookup::LookupSource| (source.table_name, Some(source.column), "lookup".to_owned());
        return Ok(TableIterator::new(lookup.source.into_iter().map(row).collect::<Vec<_>>()));
    }
    let keyspace = keyspace::find(&keyspace).map_err(Failure::from)?;
    let row = |listed: ListedTable| (listed.table_name, listed.shard_by, listed.policy.as_str().to_owned());
    Ok(TableIterator::new(table_policy::all(&keyspace.name).into_iter().map(row).collect::<Vec<_>>()))
}

extension_sql_file!(
    "../../sql/comments/keyspace.sql",
    name = "comments_keyspace",
    requires = [shard_keyspace_add, shard_keyspace_drop, shard_table_add, shard_table_drop, shard_tables]
);
