//! Reference tables: how far each shard is.

use super::row;
use super::rows::{Columns, RowSet};
use crate::catalog::reference::{self, ListedReference};
use crate::error::required;
use crate::reference as follow;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::Duration;

#[pg_extern(volatile, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_reference_tables(keyspace: default!(Option<String>, "NULL")) -> RowSet<row::ReferenceTable> {
    let line = |l: ListedReference| -> Columns<row::ReferenceTable> {
        (l.keyspace, l.table_name, l.origin, l.shard, l.state, l.lag, l.error, l.hint)
    };
    RowSet::new(reference::list(keyspace.as_deref()).into_iter().map(line))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_reference_wait(
    keyspace: default!(Option<String>, "'default'"),
    timeout: default!(Option<Interval>, "'10 min'"),
) -> Result<(), ErrorReport> {
    let micros = required(timeout, "timeout")?.as_micros().max(0);
    let limit = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        .min(Duration::from_secs(86_400 * 365));
    Ok(follow::wait(&required(keyspace, "keyspace")?, limit)?)
}

extension_sql_file!(
    "../../sql/comments/reference.sql",
    name = "comments_reference",
    requires = [shard_reference_tables, shard_reference_wait]
);
