//! Gateways: the addresses of shards' services, and configurations that send requests there.

use super::on_primary;
use crate::catalog::{outdated, shard};
use crate::error::{Failure, required};
use crate::gateway::{self, GatewayRequest, service};
use crate::routing::after_start;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_set_service(shard_key: Option<String>, address: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_set_service")?;
    Ok(service::set(&required(shard_key, "shard_key")?, address.as_deref())?)
}

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_services() -> TableIterator<'static, (name!(shard_key, String), name!(address, Option<String>))>
{
    TableIterator::new(shard::services())
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_gateway_config(
    gateway: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    key_from: default!(Option<String>, "'header:X-Shard-Key'"),
    listen: default!(Option<String>, "'127.0.0.1:8080'"),
) -> Result<String, ErrorReport> {
    let request = GatewayRequest {
        gateway: required(gateway, "gateway")?,
        keyspace: required(keyspace, "keyspace")?,
        key_from: required(key_from, "key_from")?,
        listen: required(listen, "listen")?,
    };
    // Outdated routes would send writers to the shard that held the rows before.
    if gateway::has_routes(&request) {
        after_start::wait(&request.keyspace)?;
        outdated::require_current(&request.keyspace).map_err(Failure::from)?;
    }
    let config = gateway::config(&request)?;
    if let Some(warning) = config.warning {
        warn(warning);
    }
    Ok(config.text)
}

/// Raises a warning, which an operator at psql sees beside the result.
fn warn(failure: Failure) {
    ErrorReport::from(failure).report(PgLogLevel::WARNING);
}

extension_sql_file!(
    "../../sql/comments/gateway.sql",
    name = "comments_gateway",
    requires = [shard_set_service, shard_services, shard_gateway_config]
);
