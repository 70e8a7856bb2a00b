//! Compares both sides of a split, and copies the rows that differ again.

use super::on_primary;
use crate::error::required;
use crate::split::lifecycle;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_verify(split_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_split_verify")?;
    Ok(lifecycle::verify(required(split_id, "split_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_repair(split_id: Option<i64>) -> Result<i64, ErrorReport> {
    on_primary("shard_split_repair")?;
    Ok(lifecycle::repair(required(split_id, "split_id")?)?)
}

extension_sql_file!(
    "../../sql/verification.sql",
    name = "verification",
    requires = [shard_split_verify, shard_split_repair, "split_metrics"]
);
