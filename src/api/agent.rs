//! The extension's objects that remain on shards: the redirect of a finished split, the identity of the master, the
//! orphans of a removed split.

use super::rows::RowSet;
use super::{STAYS, on_primary, outside_transaction, row};
use crate::error::required;
use crate::split::end::{adopt, cleanup};
use crate::split::lifecycle;
use crate::{clean, lookups, reference};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The symbol is that of version 0.1; `sql/renamed.sql` has its SQL name.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_guard_drop(
    split_id: Option<i64>,
    source_lost: default!(Option<bool>, "false"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_redirect_drop")?;
    let source_lost = required(source_lost, "source_lost")?;
    let split_id = required(split_id, "split_id")?;
    outside_transaction("shard_split_redirect_drop", STAYS)?;
    Ok(lifecycle::drop_guard(split_id, source_lost)?)
}

/// NULL stands for all shards.
#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_adopt(
    shard_key: default!(Option<String>, "NULL"),
    dry_run: default!(Option<bool>, "false"),
    keep_routes: default!(Option<Vec<Option<i64>>>, "NULL"),
) -> Result<RowSet<row::Adopted>, ErrorReport> {
    on_primary("shard_adopt")?;
    let dry_run = required(dry_run, "dry_run")?;
    outside_transaction("shard_adopt", STAYS)?;
    let numbers = keep_routes.unwrap_or_default().into_iter().map(|number| required(number, "keep_routes"));
    let keep_routes = numbers.collect::<Result<Vec<i64>, _>>()?;
    let call = adopt::AdoptCall { shard_key: shard_key.as_deref(), dry_run, keep_routes: &keep_routes };
    let rows = adopt::run(call)?;
    Ok(RowSet::new(rows.into_iter().map(|row| {
        let adopt::AdoptRow { said_by, keyspace, key, routed_to, moved_to, split_id, version, action } = row;
        (said_by, keyspace, key, routed_to, moved_to, split_id, version, clean::printable(&action))
    })))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_cleanup(
    shard_key: Option<String>,
) -> Result<TableIterator<'static, (name!(object, String), name!(action, String))>, ErrorReport> {
    on_primary("shard_cleanup")?;
    let shard_key = required(shard_key, "shard_key")?;
    outside_transaction("shard_cleanup", STAYS)?;
    let mut removed = cleanup::run(&shard_key)?;
    removed.extend(lookups::clean(&shard_key)?);
    removed.extend(reference::cleanup::run(&shard_key)?);
    Ok(TableIterator::new(removed))
}

extension_sql_file!("../../sql/guards.sql", name = "guards", requires = ["standing"]);

extension_sql_file!(
    "../../sql/comments/agent.sql",
    name = "comments_agent",
    requires = [shard_guard_drop, shard_adopt, shard_cleanup]
);
