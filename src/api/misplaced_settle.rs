//! Moves rows that are not where their key's route leads to the right shard, or deletes them.

use super::arguments::{invalid, longest_wait, names_of};
use super::rows::RowSet;
use super::{COMMITS, on_primary, outside_transaction, row};
use crate::catalog::misplaced_run::{self, Action, Deletes};
use crate::error::{Failure, required};
use crate::misplaced::{self, MoveRequest};
use crate::query::run::require_fit;
use crate::routing::after_start;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: shards are asked as the caller's login.
#[allow(clippy::too_many_arguments)]
#[pg_extern(schema = "shardmaster", name = "misplaced_begin", volatile, parallel_unsafe)]
pub fn shard_misplaced_begin(
    action: Option<String>,
    shard: Option<String>,
    keys: Option<Vec<Option<String>>>,
    keyspace: Option<String>,
    tables: Option<Vec<Option<String>>>,
    fire_triggers: Option<bool>,
    timeout: Option<Interval>,
) -> Result<i64, ErrorReport> {
    let call = match action.as_deref() {
        Some("move") | None => "shard_misplaced_move",
        Some(_) => "shard_misplaced_delete",
    };
    on_primary(call)?;
    outside_transaction(call, COMMITS)?;
    require_fit(call)?;
    let action = action_of(&required(action, "action")?)?;
    let keyspace = required(keyspace, "keyspace")?;
    after_start::wait(&keyspace)?;
    Ok(misplaced::begin(MoveRequest {
        action,
        shard: &required(shard, "shard")?,
        keys: required(keys, "keys")?,
        keyspace: &keyspace,
        tables: tables.map(|names| names_of(names, "tables")).transpose()?.as_deref(),
        fire_triggers: required(fire_triggers, "fire_triggers")?,
        timeout: longest_wait(timeout)?,
    })?)
}

/// Parses an action. The rows that a deletion removes are a suffix of it, so that the function keeps the signature of
/// the last release.
fn action_of(text: &str) -> Result<Action, Failure> {
    let rows = match (text, text.strip_prefix("delete_")) {
        ("move", _) => return Ok(Action::Move),
        ("delete", _) => return Ok(Action::Delete(Deletes::OnBoth)),
        (_, None) => return Err(invalid("action", "it is not one of \"move\", \"delete\"")),
        (_, Some("")) => required(None::<&str>, "rows")?,
        (_, Some(rows)) => rows,
    };
    let deletes = Deletes::from_name(rows)
        .ok_or_else(|| invalid("rows", format!("it is not one of {}", Deletes::names())))?;
    Ok(Action::Delete(deletes))
}

/// SECURITY INVOKER, as above.
#[pg_extern(schema = "shardmaster", name = "misplaced_step", volatile, parallel_unsafe)]
pub fn shard_misplaced_step(run_id: Option<i64>) -> Result<bool, ErrorReport> {
    on_primary("shard_misplaced_move")?;
    outside_transaction("shard_misplaced_move", COMMITS)?;
    Ok(misplaced::step(required(run_id, "run_id")?)?)
}

/// SECURITY INVOKER, as above.
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_misplaced_abandon(
    run_id: Option<i64>,
    force: default!(Option<bool>, "false"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<(), ErrorReport> {
    on_primary("shard_misplaced_abandon")?;
    require_fit("shard_misplaced_abandon")?;
    let (id, force) = (required(run_id, "run_id")?, required(force, "force")?);
    Ok(misplaced::abandon(id, force, longest_wait(timeout)?)?)
}

#[pg_extern(stable, parallel_safe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_misplaced_runs(run_id: default!(Option<i64>, "NULL")) -> RowSet<row::MisplacedRun> {
    RowSet::new(misplaced_run::list(run_id).into_iter().map(|one| {
        (
            one.run,
            one.action,
            one.keyspace,
            one.shard,
            one.keys,
            one.state,
            one.table,
            one.moved,
            one.deleted,
            one.sqlstate,
            one.message,
            one.started_by,
            one.started_at,
            one.changed_at,
        )
    }))
}

extension_sql_file!(
    "../../sql/misplaced_settle.sql",
    name = "misplaced_settle",
    requires = [
        "misplaced",
        "own_calls",
        shard_misplaced_begin,
        shard_misplaced_step,
        shard_misplaced_abandon,
        shard_misplaced_runs
    ]
);
