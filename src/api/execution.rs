//! Runs one statement on all shards.

use super::arguments::{invalid, longest_wait, names_of};
use super::rows::RowSet;
use super::{COMMITS, on_primary, outside_transaction, row};
use crate::catalog::execution;
use crate::error::required;
use crate::execution::{self as carried_out, ExecutionRequest};
use crate::query::run::require_fit;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The catalog of 0.1.0 calls this form, between the server's restart and ALTER EXTENSION UPDATE.
#[pg_extern(volatile, parallel_unsafe, sql = false)]
pub fn shard_execution_begin(
    sql: Option<String>,
    keyspace: Option<String>,
    shards: Option<Vec<Option<String>>>,
    wave: Option<i32>,
    in_transaction: Option<bool>,
    timeout: Option<Interval>,
    two_phase: default!(Option<bool>, "false"),
) -> Result<i64, ErrorReport> {
    shard_execution_begin_by(sql, keyspace, shards, wave, in_transaction, timeout, two_phase, Some(false))
}

/// SECURITY INVOKER: shards are asked as the caller's login.
#[allow(clippy::too_many_arguments)]
#[pg_extern(schema = "shardmaster", name = "execution_begin", volatile, parallel_unsafe)]
pub fn shard_execution_begin_by(
    sql: Option<String>,
    keyspace: Option<String>,
    shards: Option<Vec<Option<String>>>,
    wave: Option<i32>,
    in_transaction: Option<bool>,
    timeout: Option<Interval>,
    two_phase: default!(Option<bool>, "false"),
    by_policies: default!(Option<bool>, "false"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_execute")?;
    outside_transaction("shard_execute", COMMITS)?;
    require_fit("shard_execute")?;
    let wave = required(wave, "wave")?;
    if wave < 1 {
        return Err(invalid("wave", "it must be at least one shard at a time").into());
    }
    let in_transaction = required(in_transaction, "in_transaction")?;
    let two_phase = required(two_phase, "two_phase")?;
    if two_phase && !in_transaction {
        return Err(invalid("two_phase", "without a transaction nothing can be prepared").into());
    }
    if two_phase && wave > 1 {
        return Err(invalid("wave", "in two phases all shards run it in parallel").into());
    }
    Ok(carried_out::begin(&ExecutionRequest {
        statement: &required(sql, "sql")?,
        keyspace: &required(keyspace, "keyspace")?,
        shards: shards.map(|names| names_of(names, "shards")).transpose()?.as_deref(),
        wave,
        in_transaction,
        two_phase,
        by_policies: required(by_policies, "by_policies")?,
        timeout: longest_wait(timeout)?,
    })?)
}

/// SECURITY INVOKER, as above.
#[pg_extern(schema = "shardmaster", name = "execution_take", volatile, parallel_unsafe)]
pub fn shard_execution_take(
    execution_id: Option<i64>,
    retry: Option<bool>,
    timeout: Option<Interval>,
) -> Result<(), ErrorReport> {
    on_primary("shard_execute_resume")?;
    outside_transaction("shard_execute_resume", COMMITS)?;
    require_fit("shard_execute_resume")?;
    let (id, retry) = (required(execution_id, "execution_id")?, required(retry, "retry")?);
    Ok(carried_out::take(id, retry, longest_wait(timeout)?)?)
}

/// SECURITY INVOKER, as above.
#[pg_extern(schema = "shardmaster", name = "execution_step", volatile, parallel_unsafe)]
pub fn shard_execution_step(
    execution_id: Option<i64>,
    timeout: Option<Interval>,
) -> Result<bool, ErrorReport> {
    on_primary("shard_execute_resume")?;
    outside_transaction("shard_execute_resume", COMMITS)?;
    Ok(carried_out::step(required(execution_id, "execution_id")?, longest_wait(timeout)?)?)
}

#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_execute_abandon(
    execution_id: Option<i64>,
    force: default!(Option<bool>, "false"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<(), ErrorReport> {
    on_primary("shard_execute_abandon")?;
    outside_transaction("shard_execute_abandon", COMMITS)?;
    let (id, force) = (required(execution_id, "execution_id")?, required(force, "force")?);
    Ok(carried_out::abandon(id, force, longest_wait(timeout)?)?)
}

#[pg_extern(stable, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_executions(execution_id: default!(Option<i64>, "NULL")) -> RowSet<row::Execution> {
    RowSet::new(execution::list(execution_id).into_iter().map(|one| {
        (
            one.execution,
            one.shard,
            one.state,
            one.rows,
            one.sqlstate,
            one.message,
            one.statement,
            one.started_by,
            one.changed_at,
            one.gid,
        )
    }))
}

extension_sql_file!(
    "../../sql/execute.sql",
    name = "execute",
    requires = [
        "execution",
        "own_calls",
        shard_execution_begin_by,
        shard_execution_take,
        shard_execution_step,
        shard_execute_abandon,
        shard_executions
    ]
);
