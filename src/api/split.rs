//! The life of a split: plan it, request its next step, watch it.

use super::rows::RowSet;
use super::{COMMITS, on_primary, outside_transaction, row};
use crate::catalog::auto_finish::FinishTerms;
use crate::catalog::cutover_request::Wishes;
use crate::catalog::split::ColumnMap;
use crate::catalog::split_state::row::read as read_state;
use crate::error::{Failure, SqlState, required};
use crate::split::lifecycle::{self, work};
use crate::split::metrics::{self, KnownFigures};
use crate::split::{injection_points, plan};
use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::Duration;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_plan(
    source: Option<String>,
    target: Option<String>,
    tenants: Option<Vec<Option<String>>>,
    description: default!(Option<String>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_split_plan")?;
    let source = required(source, "source")?;
    let target = required(target, "target")?;
    let keyspace = required(keyspace, "keyspace")?;
    Ok(plan::create(plan::PlanRequest {
        source: &source,
        target: &target,
        what: plan::PlannedScope::Named(required(tenants, "tenants")?),
        description: description.as_deref(),
        keyspace: &keyspace,
    })?)
}

/// A bound that is NULL is open.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_plan_range(
    source: Option<String>,
    target: Option<String>,
    lower: Option<String>,
    upper: Option<String>,
    description: default!(Option<String>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_split_plan_range")?;
    Ok(plan::create(plan::PlanRequest {
        source: &required(source, "source")?,
        target: &required(target, "target")?,
        what: plan::PlannedScope::Range(lower, upper),
        description: description.as_deref(),
        keyspace: &required(keyspace, "keyspace")?,
    })?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_plan_all(
    source: Option<String>,
    target: Option<String>,
    description: default!(Option<String>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_split_plan_all")?;
    Ok(plan::create(plan::PlanRequest {
        source: &required(source, "source")?,
        target: &required(target, "target")?,
        what: plan::PlannedScope::All,
        description: description.as_deref(),
        keyspace: &required(keyspace, "keyspace")?,
    })?)
}

/// An expression that is NULL leaves the column out.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_map(
    split_id: Option<i64>,
    table_name: Option<String>,
    column_name: Option<String>,
    expression: Option<String>,
) -> Result<(), ErrorReport> {
    on_primary("shard_split_map")?;
    let map = ColumnMap { column: required(column_name, "column_name")?, expression };
    Ok(lifecycle::map(required(split_id, "split_id")?, &required(table_name, "table_name")?, &map)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_accept(
    split_id: Option<i64>,
    check_name: Option<String>,
    object: Option<String>,
) -> Result<(), ErrorReport> {
    on_primary("shard_split_accept")?;
    let (check_name, object) = (required(check_name, "check_name")?, required(object, "object")?);
    Ok(lifecycle::accept(required(split_id, "split_id")?, &check_name, &object)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_start_dual_write(
    split_id: Option<i64>,
    on_ddl: default!(Option<String>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_start_dual_write")?;
    let applies = match on_ddl.as_deref() {
        None => None,
        Some("wait") => Some(false),
        // The second one is the name in version 0.1.
        Some("apply" | "replay") => Some(true),
        Some(_) => return Err(invalid("on_ddl", "it is not one of \"wait\", \"apply\"").into()),
    };
    Ok(lifecycle::start_dual_write(required(split_id, "split_id")?, applies)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_run_backfill(split_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_split_run_backfill")?;
    Ok(lifecycle::run_backfill(required(split_id, "split_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_replay_tail(split_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_split_replay_tail")?;
    Ok(lifecycle::replay_tail(required(split_id, "split_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_cutover(
    split_id: Option<i64>,
    max_fence: default!(Option<Interval>, "NULL"),
    not_before: default!(Option<TimestampWithTimeZone>, "NULL"),
    until: default!(Option<TimestampWithTimeZone>, "NULL"),
    attempts: default!(Option<i32>, "1"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_cutover")?;
    let attempts = required(attempts, "attempts")?;
    if attempts < 1 {
        return Err(invalid("attempts", "it must be at least one").into());
    }
    let wishes = Wishes { max_fence: longest_wait(max_fence)?, not_before, until, attempts };
    Ok(lifecycle::cutover(required(split_id, "split_id")?, &wishes)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_rehearse(
    split_id: Option<i64>,
    max_fence: default!(Option<Interval>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_rehearse")?;
    let wishes = Wishes { max_fence: longest_wait(max_fence)?, not_before: None, until: None, attempts: 1 };
    Ok(lifecycle::rehearse(required(split_id, "split_id")?, &wishes)?)
}

/// Returns the limit of the time for which writers may be blocked.
fn longest_wait(max_fence: Option<Interval>) -> Result<Option<Duration>, Failure> {
    let Some(limit) = max_fence else { return Ok(None) };
    match u64::try_from(limit.as_micros()) {
        Ok(micros) if micros >= SHORTEST_FENCE => Ok(Some(Duration::from_micros(micros))),
        Ok(_) => Err(invalid("max_fence", "it must be at least one millisecond")),
        // The interval is negative or infinite.
        Err(_) => Err(invalid("max_fence", "it must be finite")),
    }
}

/// In microseconds.
const SHORTEST_FENCE: u64 = 1000;

fn invalid(argument: &str, what: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("argument \"{argument}\" is not valid: {what}"))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_rollback(
    split_id: Option<i64>,
    target_lost: default!(Option<bool>, "false"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_rollback")?;
    let target_lost = required(target_lost, "target_lost")?;
    Ok(lifecycle::rollback(required(split_id, "split_id")?, target_lost)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_reverse(
    split_id: Option<i64>,
    copy_again: default!(Option<bool>, "false"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_split_reverse")?;
    let copy_again = required(copy_again, "copy_again")?;
    Ok(lifecycle::reverse(required(split_id, "split_id")?, copy_again)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_finish(
    split_id: Option<i64>,
    accept_missing: default!(Option<bool>, "false"),
    source_lost: default!(Option<bool>, "false"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_finish")?;
    let accept_missing = required(accept_missing, "accept_missing")?;
    let source_lost = required(source_lost, "source_lost")?;
    Ok(lifecycle::finish(required(split_id, "split_id")?, accept_missing, source_lost)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_switch_reads(
    split_id: Option<i64>,
    to_target: default!(Option<bool>, "true"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_switch_reads")?;
    let to_target = required(to_target, "to_target")?;
    Ok(lifecycle::switch_reads(required(split_id, "split_id")?, to_target)?)
}

/// The symbol is that of version 0.1; `sql/renamed.sql` has its SQL name.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_settle_for(
    split_id: Option<i64>,
    age: default!(Option<Interval>, "NULL"),
    queue_bytes: default!(Option<i64>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_split_auto_finish")?;
    if age.is_some_and(|age| age.as_micros() < 0) {
        return Err(invalid("after", "it must not be negative").into());
    }
    if queue_bytes.is_some_and(|bytes| bytes < 0) {
        return Err(invalid("queue_bytes", "it must not be negative").into());
    }
    let terms = (age.is_some() || queue_bytes.is_some()).then_some(FinishTerms { age, queue_bytes });
    Ok(lifecycle::settle_for(required(split_id, "split_id")?, terms.as_ref())?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_pause(split_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_split_pause")?;
    Ok(lifecycle::pause(required(split_id, "split_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_resume(split_id: Option<i64>) -> Result<(), ErrorReport> {
    on_primary("shard_split_resume")?;
    Ok(lifecycle::resume(required(split_id, "split_id")?)?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_wait(
    split_id: Option<i64>,
    phase: Option<String>,
    timeout: default!(Option<Interval>, "'10 min'"),
) -> Result<String, ErrorReport> {
    let timeout = required(timeout, "timeout")?;
    let seconds = timeout.as_micros() as f64 / 1e6;
    let phase = required(phase, "phase")?;
    Ok(lifecycle::wait(required(split_id, "split_id")?, &phase, seconds)?)
}

#[pg_extern(immutable, parallel_safe)]
pub fn shard_split_points()
-> TableIterator<'static, (name!(point, String), name!(phase, String), name!(description, String))> {
    TableIterator::new(
        injection_points::ALL
            .iter()
            .map(|p| (p.name.to_owned(), p.phase.to_owned(), p.description.to_owned())),
    )
}

/// Lists the life of a split: each allowed change of phase, then what each call does in each phase.
#[pg_extern(immutable, parallel_safe)]
#[allow(clippy::type_complexity)]
fn shard_split_lifecycle() -> TableIterator<
    'static,
    (
        name!(from_phase, String),
        name!(to_phase, Option<String>),
        name!(call, Option<String>),
        name!(condition, Option<String>),
    ),
> {
    TableIterator::new(lifecycle::described())
}

/// Returns how far targets are behind their sources: the part of shard_split_metrics that asks the shards.
#[pg_extern(
    schema = "shardmaster",
    name = "split_figures",
    volatile,
    parallel_unsafe,
    security_definer,
    requires = ["rows"]
)]
#[search_path(pg_catalog, pg_temp)]
#[allow(clippy::type_complexity)]
fn shard_split_figures(split_id: Option<i64>) -> Result<RowSet<row::SplitFigures>, ErrorReport> {
    let row = |(id, known): (i64, KnownFigures)| match known {
        Ok(now) => {
            let lag = Some(now.lag.as_secs_f64());
            let is_behind = Some(now.is_behind());
            (id, Some(now.lag_rows), lag, Some(now.queue_bytes), is_behind, now.problem(), now.queue_limit)
        }
        Err(problem) => (id, None, None, None, None, Some(problem), None),
    };
    Ok(RowSet::new(metrics::now(split_id)?.into_iter().map(row)))
}

/// Returns the call that the procedure shard_split_run makes next on the way to a phase, or NULL if the split has
/// reached it. Raises the split's error if it has failed, unless this is the call that resumes it.
#[pg_extern(schema = "shardmaster", name = "split_next_call", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_split_next_call(
    split_id: Option<i64>,
    until: Option<String>,
    resumes: Option<bool>,
) -> Result<Option<String>, ErrorReport> {
    on_primary("shard_split_run")?;
    outside_transaction("shard_split_run", COMMITS)?;
    let id = required(split_id, "split_id")?;
    let until = required(until, "until")?;
    let resumes = required(resumes, "resumes")?;
    Ok(lifecycle::next_call(id, &until, resumes)?.map(str::to_owned))
}

/// Whether a split has work for which it takes one of the workers that shardmaster.max_split_workers limits.
#[pg_extern(schema = "shardmaster", name = "split_takes_worker", stable, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_split_takes_worker(split_id: i64) -> Result<bool, ErrorReport> {
    Ok(work::takes_place(&read_state(split_id)?))
}

/// Returns the split that brings keys to a shard, and plans it if there is none. Returns NULL if all keys are there
/// already.
#[pg_extern(schema = "shardmaster", name = "split_to", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_split_to(
    keys: Option<Vec<Option<String>>>,
    target: Option<String>,
    keyspace: Option<String>,
) -> Result<Option<i64>, ErrorReport> {
    on_primary("shard_move")?;
    outside_transaction("shard_move", COMMITS)?;
    let (keys, target) = (required(keys, "keys")?, required(target, "target")?);
    Ok(plan::destination::split_to(&target, keys, &required(keyspace, "keyspace")?)?)
}

/// Waits until a split's state changes, or for some milliseconds.
#[pg_extern(
    schema = "shardmaster",
    name = "split_wait_for_change",
    volatile,
    parallel_unsafe,
    security_definer
)]
#[search_path(pg_catalog, pg_temp)]
fn shard_split_progress(split_id: Option<i64>, milliseconds: Option<i64>) -> Result<(), ErrorReport> {
    let id = required(split_id, "split_id")?;
    let milliseconds = required(milliseconds, "milliseconds")?;
    Ok(lifecycle::wait_for_change(id, u64::try_from(milliseconds).unwrap_or(0))?)
}

extension_sql_file!("../../sql/own_calls.sql", name = "own_calls", requires = ["rows", "catalog"]);

extension_sql_file!(
    "../../sql/split_run.sql",
    name = "split_run",
    requires = [
        shard_split_plan,
        shard_split_plan_range,
        shard_split_plan_all,
        shard_split_map,
        shard_split_accept,
        shard_split_start_dual_write,
        shard_split_run_backfill,
        shard_split_replay_tail,
        shard_split_cutover,
        shard_split_rehearse,
        shard_split_rollback,
        shard_split_reverse,
        shard_split_finish,
        shard_split_settle_for,
        shard_split_switch_reads,
        shard_split_pause,
        shard_split_resume,
        shard_split_wait,
        shard_split_points,
        shard_split_lifecycle,
        shard_split_next_call,
        shard_split_progress,
        "own_calls"
    ]
);

extension_sql_file!("../../sql/renamed.sql", name = "renamed", requires = ["split_run", "comments_agent"]);

extension_sql_file!(
    "../../sql/move.sql",
    name = "move",
    requires = [shard_split_to, "split_run", "verification", "own_calls"]
);

extension_sql_file!(
    "../../sql/split_metrics.sql",
    name = "split_metrics",
    requires = [shard_split_figures, shard_split_takes_worker, "comments_split_diagnose", "own_calls"]
);

extension_sql_file!("../../sql/splits.sql", name = "splits", requires = ["split_metrics"]);
