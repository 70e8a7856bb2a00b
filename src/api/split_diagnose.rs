//! What is wrong with a split, and what to do now.

use crate::error::required;
use crate::split::{diagnose, lifecycle};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Asks both shards, each for at most `shardmaster.remote_timeout`.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
#[allow(clippy::type_complexity)]
fn shard_split_diagnose(
    split_id: Option<i64>,
) -> Result<
    TableIterator<'static, (name!(place, String), name!(problem, String), name!(repair, Option<String>))>,
    ErrorReport,
> {
    let found = diagnose::run(required(split_id, "split_id")?)?;
    Ok(TableIterator::new(found.into_iter().map(|one| (one.place, one.problem, one.repair))))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_split_to_call(split_id: Option<i64>) -> Result<Option<String>, ErrorReport> {
    Ok(lifecycle::next_words(required(split_id, "split_id")?)?)
}

extension_sql_file!(
    "../../sql/comments/split_diagnose.sql",
    name = "comments_split_diagnose",
    requires = [shard_split_diagnose, shard_split_to_call]
);
