//! Checks of both sides before a finish removes anything.

use crate::agent::error::{Result, SplitError};
use crate::agent::known_column::KnownColumn;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::agent::state::progress;
use crate::agent::state::side::SideState;
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{self, CutoverStep};
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::quote::array_literal;
use crate::server::txn::transaction;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::copy::leaves;
use crate::split::cutover::{side_state_check, source};
use crate::split::engine::sessions::EngineSessions;
use crate::split::record::FinishRequest;
use crate::split::table::{SplitTable, computed};
use crate::split::{references, unregistered, untrusted_code};

/// Checks both sides before anything is removed.
pub fn require_ready(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    request: &FinishRequest,
) -> Result<()> {
    require_told(plan, sessions, request.version)?;
    untrusted_code::require_none(&mut sessions.target, plan, Side::Target)?;
    require_no_subscription(&mut sessions.target, tables)?;
    require_identity(plan, &mut sessions.target, tables)?;
    if !request.accepts {
        require_nothing_stray(plan, sessions, tables)?;
        require_same_tables(plan, &mut sessions.target, tables)?;
        require_all_columns(plan, &mut sessions.target, tables)?;
        // A moving table that was replaced is in no keyspace, either; that it was replaced is the more useful error.
        unregistered::require_none_before_finish(&mut sessions.control, plan)?;
    }
    require_fit_rows(plan, sessions, request.accepts)
}

/// Checks the rows of the source, which are read once for both checks.
fn require_fit_rows(plan: &Plan, sessions: &mut EngineSessions, accepts: bool) -> Result<()> {
    let EngineSessions { control, target, .. } = sessions;
    let inbound_fk = untrusted_code::reading(control, plan, Side::Source, |source, locked| {
        if !accepts {
            leaves::check_source_before_finish(source, locked, target, plan)?;
        }
        references::staying_rows(source, plan, locked)
    })?;
    // Deleted in replica role, a row would leave rows that reference it dangling.
    inbound_fk.map_or(Ok(()), |inbound_fk| Err(references::stays_bound(plan, Side::Source, &inbound_fk)))
}

/// Requires that the source has of the scope what it had at the cutover: no client has written there.
pub fn require_frozen(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    require_nothing_stray(plan, sessions, tables)?;
    require_same_tables(plan, &mut sessions.target, tables)?;
    let EngineSessions { control, target, .. } = sessions;
    untrusted_code::reading(control, plan, Side::Source, |source, locked| {
        leaves::check_source_before_finish(source, locked, target, plan)
    })
}

/// Requires that both shards have the states that the cutover has set. Otherwise these are set again before anything
/// else.
pub fn require_told(plan: &Plan, sessions: &mut EngineSessions, version: i64) -> Result<()> {
    let source =
        side_state_check::difference(&mut sessions.control, plan, Side::Source, SideState::Moved, version)?;
    let target =
        side_state_check::difference(&mut sessions.target, plan, Side::Target, SideState::Open, version)?;
    let Some(text) = source.or(target) else {
        return Ok(());
    };
    transaction(|| {
        split_state::cutover::step(plan.id, CutoverStep::Decided);
        split::event(plan.id, None, None, &format!("state restored: {text}"));
    });
    Err(SplitError::Retry(text))
}

/// Refuses if stale clients wrote while the source had lost its fence: these changes exist nowhere else.
fn require_nothing_stray(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let Some(text) = stray(plan, sessions, tables)? else { return Ok(()) };
    let queues: Vec<&str> = tables.iter().map(|table| table.queue.as_str()).collect();
    Err(refuse(plan, format!("{text}; their keys are in {}", queues.join(", "))))
}

/// Describes changes that the source has accepted after the cutover.
pub fn stray(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<Option<String>> {
    let stray = source::stray_changes(plan, sessions, tables)?;
    let shard = &plan.source.shard_key;
    Ok((stray > 0).then(|| {
        format!(
            "source shard \"{shard}\" accepted {stray} changes after the cutover, while it had lost its fence"
        )
    }))
}

/// Compares the tables by oid: a table that was renamed, and another that has taken its name, are not the same.
fn require_same_tables(plan: &Plan, target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let progress = progress::stored(target, plan)?.unwrap_or_default();
    for (table, known) in tables.iter().zip(&progress.tables) {
        let oid = table.source.oid.as_deref().unwrap_or_default();
        if !known.structure.starts_with(&format!("oid {oid},")) {
            return Err(refuse(
                plan,
                format!(
                    "table {} of shard \"{}\" is not the one whose rows were moved: it was replaced since",
                    table.source.name, plan.source.shard_key
                ),
            ));
        }
    }
    Ok(())
}

/// Requires that keys still have their meaning, even if missing rows are accepted: otherwise rows of keys that stay
/// would be deleted.
fn require_identity(plan: &Plan, target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let progress = progress::stored(target, plan)?.unwrap_or_default();
    let key_identity = KeyIdentity::stored(&progress, &plan.scope, Side::Source);
    let changes = tables.iter().filter_map(|table| {
        Some((&table.source.name, key_identity.change(&table.source, &table.policy.shard_by)?))
    });
    let Some((table, what)) = changes.into_iter().next() else { return Ok(()) };
    let (id, source) = (plan.id, &plan.source.shard_key);
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "table {table} of shard \"{source}\" has rows of the moved keys that are not those that were moved: {what}"
        ),
        format!(
            "None of them is deleted. Rename it back to its name at the cutover, then call shard_split_finish({id}) again."
        ),
    ))
}

fn require_all_columns(plan: &Plan, target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let Some(text) = uncompared(plan, target, tables)? else { return Ok(()) };
    let id = plan.id;
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        text,
        format!(
            "Nothing was deleted. Make both sides alike by the same change on the other one, then call shard_split_finish({id}) again. If its values may be lost: SELECT shard_split_finish({id}, accept_missing => true)."
        ),
    ))
}

/// Returns a column of the source that is not compared because the target has no column for it: it was renamed or
/// dropped on one side since the cutover, at which the target had one. Returns None if there is no such column.
pub fn uncompared(plan: &Plan, target: &mut Connection, tables: &[SplitTable]) -> Result<Option<String>> {
    let progress = progress::stored(target, plan)?.unwrap_or_default();
    for (table, known) in tables.iter().zip(&progress.tables) {
        let had = |column: &Column| {
            let number = KnownColumn::from(column);
            known.columns.iter().flatten().any(|known| known.attribute() == number.attribute())
        };
        let lost = |column: &&Column| {
            column.generated.is_none()
                && table.target.column(&column.name).is_none()
                && !computed::is_own(&table.policy, &column.name)
                && had(column)
        };
        if let Some(column) = table.source.columns().iter().find(lost) {
            let (source, target) = (&plan.source.shard_key, &plan.target.shard_key);
            return Ok(Some(format!(
                "column \"{}\" of table {} is on shard \"{source}\" and not on shard \"{target}\", so that its values there cannot be compared",
                column.name, table.source.name
            )));
        }
    }
    Ok(None)
}

/// Refuses a subscription: what finish deletes on the source would be deleted on the target, too.
fn require_no_subscription(target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let tables = tables.iter().flat_map(|table| {
        table.target.oid.iter().chain(table.target.leaves().iter().map(|leaf| &leaf.oid)).cloned()
    });
    let oids = array_literal(&tables.collect::<Vec<_>>());
    let found = target.run(&format!(
        "SELECT srrelid::regclass FROM pg_subscription_rel WHERE srrelid = ANY ({oids}::oid[]) LIMIT 1"
    ))?;
    let Some(table) = found.scalar() else { return Ok(()) };
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("table {table} of shard \"{}\" is written to by a subscription", target.shard()),
        "Nothing was deleted, because the deletes might be replicated. Drop the subscription, then call shard_split_finish again.",
    ))
}

fn refuse(plan: &Plan, message: String) -> SplitError {
    let (id, source, target) = (plan.id, &plan.source.shard_key, &plan.target.shard_key);
    SplitError::Failed(Failure::new(SqlState::NOT_IN_STATE, message).hint(format!(
        "Nothing was deleted. Compare shard \"{source}\" with shard \"{target}\" and copy what is missing. Then SELECT shard_split_finish({id}, accept_missing => true) deletes the rows on shard \"{source}\"."
    )))
}
