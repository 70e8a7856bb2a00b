//! Columns that are filled from the table that a foreign key leads to, and the jobs that fill them.

use super::arguments::{invalid, longest_wait, names_of};
use super::on_primary;
use crate::catalog::job::JobState;
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

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_job_wait(
    job_id: Option<i64>,
    timeout: default!(Option<Interval>, "'1 h'"),
) -> Result<(), ErrorReport> {
    Ok(derive::until_done(required(job_id, "job_id")?, Instant::now() + longest_wait(timeout)?)?)
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
        shard_job_wait,
        shard_job_pause,
        shard_job_retry
    ]
);
