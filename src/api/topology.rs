//! Shards: add, change, drop, list.

use super::rows::{Columns, RowSet};
use super::{on_primary, row};
use crate::agent::check;
use crate::catalog::caller::Caller;
use crate::catalog::shard::{self, NewShard, POSTGRES, Shard};
use crate::error::{Failure, required};
use crate::guard::inspect;
use crate::remote::conninfo::Conninfo;
use crate::routing::endpoint::GivenEndpoint;
use crate::routing::topology;
use crate::server::database;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: what it does depends on who calls.
#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_add(
    shard_key: Option<String>,
    conninfo: default!(Option<String>, "NULL"),
    kind: default!(Option<String>, "'postgres'"),
    capacity: default!(Option<i64>, "NULL"),
    namespace: default!(Option<String>, "'public'"),
    client_conninfo: default!(Option<String>, "NULL"),
    read_conninfo: default!(Option<String>, "NULL"),
    host: default!(Option<String>, "NULL"),
    port: default!(Option<i32>, "NULL"),
    database: default!(Option<String>, "NULL"),
    username: default!(Option<String>, "NULL"),
    options: default!(Option<String>, "NULL"),
    uri: default!(Option<String>, "NULL"),
    auth_kind: default!(Option<String>, "NULL"),
    credential_alias: default!(Option<String>, "NULL"),
    notes: default!(Option<String>, "NULL"),
    checked: default!(Option<bool>, "false"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_add")?;
    let new = NewShard {
        shard_key: required(shard_key, "shard_key")?,
        kind: required(kind, "kind")?,
        capacity,
        namespace: required(namespace, "namespace")?,
    };
    let given = GivenEndpoint {
        conninfo,
        client_conninfo,
        read_conninfo,
        host,
        port,
        database,
        username,
        options,
        uri,
        auth_kind,
        credential_alias,
        notes,
    };
    let shard_key = new.shard_key.clone();
    let id = Caller::as_owner(|caller| topology::add(new, &given, caller))?;
    if checked.unwrap_or(false) {
        Caller::as_owner(|_| check::require(&shard_key))?;
    }
    Ok(id)
}

/// SECURITY INVOKER, as above.
#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_set_endpoint(
    shard_key: Option<String>,
    conninfo: default!(Option<String>, "NULL"),
    client_conninfo: default!(Option<String>, "NULL"),
    read_conninfo: default!(Option<String>, "NULL"),
    host: default!(Option<String>, "NULL"),
    port: default!(Option<i32>, "NULL"),
    database: default!(Option<String>, "NULL"),
    username: default!(Option<String>, "NULL"),
    options: default!(Option<String>, "NULL"),
    uri: default!(Option<String>, "NULL"),
    auth_kind: default!(Option<String>, "NULL"),
    credential_alias: default!(Option<String>, "NULL"),
    notes: default!(Option<String>, "NULL"),
    active: default!(Option<bool>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_set_endpoint")?;
    let shard_key = required(shard_key, "shard_key")?;
    let given = GivenEndpoint {
        conninfo,
        client_conninfo,
        read_conninfo,
        host,
        port,
        database,
        username,
        options,
        uri,
        auth_kind,
        credential_alias,
        notes,
    };
    Ok(Caller::as_owner(|caller| topology::set_endpoint(&shard_key, &given, active, caller))?)
}

/// SECURITY INVOKER, as above.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_add_many(
    list: Option<String>,
    prefix: default!(Option<String>, "'shard_'"),
) -> Result<Vec<String>, ErrorReport> {
    on_primary("shard_add_many")?;
    let (list, prefix) = (required(list, "list")?, required(prefix, "prefix")?);
    Ok(Caller::as_owner(|caller| topology::add_many(&list, &prefix, caller))?)
}

/// Connects to the shard as splits do.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
#[allow(clippy::type_complexity)]
pub fn shard_check(
    shard_key: Option<String>,
) -> Result<
    TableIterator<
        'static,
        (name!(item, String), name!(ok, bool), name!(detail, String), name!(hint, Option<String>)),
    >,
    ErrorReport,
> {
    let shard_key = required(shard_key, "shard_key")?;
    let mut found = check::run(&shard_key)?;
    // A shard that could not be reached is not waited for again.
    if found.iter().all(|found| found.item != check::CONNECT || found.ok) {
        found.extend(inspect::run(&shard_key)?);
    }
    Ok(TableIterator::new(
        found.into_iter().map(|found| (found.item.to_owned(), found.ok, found.detail, found.hint)),
    ))
}

type Parts = (
    name!(host, Option<String>),
    name!(port, Option<i32>),
    name!(database, Option<String>),
    name!(username, Option<String>),
    name!(options, Option<String>),
);

/// The view `shard_endpoint` calls this.
#[allow(clippy::type_complexity)]
#[pg_extern(
    requires = ["catalog"],
    sql = "CREATE FUNCTION shardmaster.conninfo_parts(conninfo text)
             RETURNS TABLE (host text, port int, database text, username text, options text)
             LANGUAGE c IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
             AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn conninfo_parts(
    conninfo: Option<String>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(host, Option<String>),
            name!(port, Option<i32>),
            name!(database, Option<String>),
            name!(username, Option<String>),
            name!(options, Option<String>),
        ),
    >,
    ErrorReport,
> {
    let parts = |text: String| -> Result<Parts, Failure> {
        let conninfo = Conninfo::parse(&text)?;
        let own = |text: Option<&str>| text.map(str::to_owned);
        let others = conninfo.without(&["host", "hostaddr", "port", "dbname", "user"]).text();
        let options = Some(others).filter(|text| !text.is_empty());
        Ok((
            own(conninfo.host()),
            conninfo.port(),
            own(conninfo.get("dbname")),
            own(conninfo.get("user")),
            options,
        ))
    };
    let rows = conninfo.map(parts).transpose()?;
    Ok(TableIterator::new(vec![rows.unwrap_or((None, None, None, None, None))]))
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
    // SAFETY: this reads the state of the transaction.
    let may_ask = !unsafe { pg_sys::IsTransactionBlock() };
    Ok(topology::drop(&required(shard_key, "shard_key")?, may_ask)?)
}

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_topology() -> Result<RowSet<row::Topology>, ErrorReport> {
    let rows = shard::all().into_iter().map(topology_row).collect::<Result<Vec<_>, Failure>>()?;
    Ok(RowSet::new(rows))
}

/// Returns the row of a shard. One without a connection string is this database, and has neither host nor port.
fn topology_row(shard: Shard) -> Result<Columns<row::Topology>, Failure> {
    let endpoint = shard.conninfo.as_deref().map(Conninfo::parse).transpose()?;
    let text = |value: Option<&str>| value.map(str::to_owned);
    let (host, port, database) = match &endpoint {
        Some(endpoint) => (text(endpoint.host()), endpoint.port(), text(endpoint.get("dbname"))),
        None if shard.kind == POSTGRES => (None, None, Some(database::name())),
        None => (None, None, None),
    };
    let (holds_rows, is_active) = (shard.holds_rows(), shard.is_active());
    Ok((
        shard.shard_index,
        shard.shard_key,
        shard.kind,
        shard.status.as_str().into(),
        host,
        port,
        database,
        holds_rows.then_some(shard.namespace),
        holds_rows.then_some(shard.auth_kind),
        shard.credential_alias,
        is_active,
    ))
}

extension_sql_file!(
    "../../sql/comments/topology.sql",
    name = "comments_topology",
    requires = [
        shard_add,
        shard_set_endpoint,
        shard_add_many,
        shard_check,
        conninfo_parts,
        shard_set_status,
        shard_set_capacity,
        shard_drop,
        shard_topology
    ]
);
