//! Columns that are filled from the table that a foreign key leads to, and the jobs that fill them.

use super::arguments::{invalid, longest_wait, names_of};
use super::{COMMITS, on_primary, outside_transaction};
use crate::catalog::job::JobState;
use crate::clean;
use crate::derive::{self, NewColumn};
use crate::error::required;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::Instant;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_table_derive(
    table_name: Option<String>,
    column_name: Option<String>,
    through: Option<Vec<Option<String>>>,
    value_column: default!(Option<String>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_table_derive")?;
    let (table, column) = (required(table_name, "table_name")?, required(column_name, "column_name")?);
    let keyspace = required(keyspace, "keyspace")?;
    let through = names_of(required(through, "through")?, "through")?;
    if through.is_empty() {
        return Err(invalid("through", "it names no column").into());
    }
    let new = NewColumn {
        table: &table,
        column: &column,
        through,
        value: value_column.as_deref(),
        keyspace: &keyspace,
        deadline: Instant::now() + longest_wait(timeout)?,
    };
    Ok(derive::add(&new)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_table_derive_drop(
    table_name: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_table_derive_drop")?;
    let (table, keyspace) = (required(table_name, "table_name")?, required(keyspace, "keyspace")?);
    Ok(derive::drop(&table, &keyspace, Instant::now() + longest_wait(timeout)?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_table_identify(
    table_name: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_table_identify")?;
    let (table, keyspace) = (required(table_name, "table_name")?, required(keyspace, "keyspace")?);
    Ok(derive::identify(&table, &keyspace, Instant::now() + longest_wait(timeout)?)?)
}

/// The progress of a job, for shard_job_wait(); NULL: it is done.
#[pg_extern(schema = "shardmaster", name = "job_line", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn job_line(job_id: Option<i64>) -> Result<Option<String>, ErrorReport> {
    outside_transaction("shard_job_wait", COMMITS)?;
    Ok(derive::progress(required(job_id, "job_id")?)?.map(|line| clean::printable(&line)))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_job_pause(job_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_job_pause")?;
    Ok(derive::set(required(job_id, "job_id")?, JobState::Paused)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_job_retry(job_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_job_retry")?;
    Ok(derive::set(required(job_id, "job_id")?, JobState::Running)?)
}

extension_sql_file!(
    "../../sql/comments/derive.sql",
    name = "comments_derive",
    requires = [
        shard_table_derive,
        shard_table_derive_drop,
        shard_table_identify,
        job_line,
        shard_job_pause,
        shard_job_retry
    ]
);
