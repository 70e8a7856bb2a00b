//! Shards: add, change, drop, list.

use super::on_primary;
use crate::catalog::caller::Caller;
use crate::catalog::shard::{self, NewShard, POSTGRES, Shard, ShardStatus};
use crate::error::{Failure, required};
use crate::remote::conninfo::Conninfo;
use crate::routing::topology;
use crate::server::database;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: what it does depends on who calls.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_add(
    shard_key: Option<String>,
    conninfo: default!(Option<String>, "NULL"),
    kind: default!(Option<String>, "'postgres'"),
    capacity: default!(Option<i64>, "NULL"),
    namespace: default!(Option<String>, "'public'"),
    client_conninfo: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_add")?;
    let new = NewShard {
        shard_key: required(shard_key, "shard_key")?,
        kind: required(kind, "kind")?,
        capacity,
        namespace: required(namespace, "namespace")?,
        conninfo,
        client_conninfo,
    };
    Ok(Caller::as_owner(|caller| topology::add(new, caller))?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_set_status(shard_key: Option<String>, status: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_set_status")?;
    Ok(topology::set_status(&required(shard_key, "shard_key")?, &required(status, "status")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_set_capacity(shard_key: Option<String>, capacity: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_set_capacity")?;
    Ok(topology::set_capacity(&required(shard_key, "shard_key")?, capacity)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_drop(shard_key: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_drop")?;
    Ok(topology::drop(&required(shard_key, "shard_key")?)?)
}

type TopologyRow = (
    name!(shard_index, i32),
    name!(shard_key, String),
    name!(kind, String),
    name!(status, String),
    name!(host, Option<String>),
    name!(port, Option<i32>),
    name!(database, Option<String>),
    name!(namespace, Option<String>),
    name!(auth_kind, Option<String>),
    name!(credential_alias, Option<String>),
    name!(active, bool),
);

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_topology() -> Result<
    TableIterator<
        'static,
        (
            name!(shard_index, i32),
            name!(shard_key, String),
            name!(kind, String),
            name!(status, String),
            name!(host, Option<String>),
            name!(port, Option<i32>),
            name!(database, Option<String>),
            name!(namespace, Option<String>),
            name!(auth_kind, Option<String>),
            name!(credential_alias, Option<String>),
            name!(active, bool),
        ),
    >,
    ErrorReport,
> {
    let rows = shard::all().into_iter().map(topology_row).collect::<Result<Vec<_>, Failure>>()?;
    Ok(TableIterator::new(rows))
}

/// A shard without a connection string is this database, and has neither host nor port.
fn topology_row(shard: Shard) -> Result<TopologyRow, Failure> {
    let endpoint = shard.conninfo.as_deref().map(Conninfo::parse).transpose()?;
    let text = |value: Option<&str>| value.map(str::to_owned);
    let (host, port, database) = match &endpoint {
        Some(endpoint) => (text(endpoint.host()), endpoint.port(), text(endpoint.get("dbname"))),
        None if shard.kind == POSTGRES => (None, None, Some(database::name())),
        None => (None, None, None),
    };
    let holds_rows = shard.holds_rows();
    Ok((
        shard.shard_index,
        shard.shard_key,
        shard.kind,
        shard.status.as_str().into(),
        host,
        port,
        database,
        holds_rows.then_some(shard.namespace),
        holds_rows.then(|| "libpq".into()),
        None,
        shard.status == ShardStatus::Active,
    ))
}

extension_sql_file!(
    "../../sql/comments/topology.sql",
    name = "comments_topology",
    requires = [shard_add, shard_set_status, shard_set_capacity, shard_drop, shard_topology]
);
