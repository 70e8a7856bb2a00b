//! Key guards of shards.

use super::{COMMITS, on_primary, outside_transaction};
use crate::error::{Failure, required};
use crate::guard;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

fn require_fit(removes: Option<bool>) -> Result<(), Failure> {
    let call = if removes == Some(true) { "shard_guard_remove" } else { "shard_guard_install" };
    on_primary(call)?;
    outside_transaction(call, COMMITS)
}

#[pg_extern(schema = "shardmaster", name = "guard_begin", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_guard_begin(
    shard_key: Option<String>,
    keyspace: Option<String>,
    removes: Option<bool>,
    force: Option<bool>,
) -> Result<(), ErrorReport> {
    require_fit(removes)?;
    let (shard_key, keyspace) = (required(shard_key, "shard_key")?, required(keyspace, "keyspace")?);
    let (removes, force) = (required(removes, "removes")?, required(force, "force")?);
    if removes {
        guard::begin_removal(&shard_key, &keyspace, force)?
    } else {
        guard::begin(&shard_key, &keyspace)?
    }
    Ok(())
}

#[pg_extern(schema = "shardmaster", name = "guard_step", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_guard_step(
    shard_key: Option<String>,
    keyspace: Option<String>,
    removes: Option<bool>,
) -> Result<bool, ErrorReport> {
    require_fit(removes)?;
    let (shard_key, keyspace) = (required(shard_key, "shard_key")?, required(keyspace, "keyspace")?);
    Ok(guard::step(&shard_key, &keyspace, required(removes, "removes")?)?)
}

extension_sql_file!(
    "../../sql/standing_install.sql",
    name = "standing_install",
    requires = ["standing", shard_guard_begin, shard_guard_step]
);
