//! The checks of finish before it removes anything: neither rows nor the reverse split.
//!
//! Invariant: if a finish is refused here, both shards are as they were, and the split can be reversed. What comes to
//! the target afterwards is found by the proof of each batch.

use super::{before, finish};
use crate::agent::error::{Result, SplitError};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress;
use crate::catalog::reverse_split;
use crate::catalog::split::Plan;
use crate::catalog::split_state::{self, row};
use crate::catalog::verification::{self, Unproven};
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::server::txn::{transaction, try_transaction};
use crate::split::engine::Engine;
use crate::split::injection_points::{self, reach};
use crate::split::record::FinishRequest;
use crate::split::table::SplitTable;
use crate::split::verify::changes::Changes;
use crate::split::verify::key;
use crate::words::moved;
use std::fmt::Write;

/// Checks everything else if the operator has accepted that rows may be missing.
pub fn require_accepted(tenure: &Tenure, request: &FinishRequest) -> Result<()> {
    let mut tenure = tenure.clone();
    finish::leave_out_dropped(&mut tenure.plan)?;
    if tenure.plan.tables.is_empty() {
        return Ok(());
    }
    let mut engine = Engine::attach(&tenure)?;
    before::require_ready(&engine.tenure.plan, &mut engine.sessions, &engine.tables, request)
}

/// Requires that every table was compared since the cutover, and that each row of the source is on the target, or was
/// changed there.
pub fn require_proven(plan: &Plan, target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let id = plan.id;
    for unproven in transaction(|| verification::unproven(id)) {
        require_like(plan, target, tables, &unproven)?;
    }
    Ok(())
}

fn require_like(
    plan: &Plan,
    target: &mut Connection,
    tables: &[SplitTable],
    unproven: &Unproven,
) -> Result<()> {
    let known = |table: &SplitTable| table.policy.ordinal == unproven.ordinal;
    let Some(position) = tables.iter().position(known) else { return Ok(()) };
    let progress = progress::stored(target, plan)?.unwrap_or_default();
    let table = &tables[position];
    let name = &table.source.name;
    let changes = Changes::of(plan, &progress, table, position);
    if unproven.differing == 0 {
        key::require_as_noted(target, plan, table)?;
        // For these the proof uses only the keys.
        if target.run(&format!("SELECT {}", changes.are_incomplete()))?.is_true() {
            return Ok(());
        }
        return Err(refusal(plan, format!("table {name} could not be compared: {}", unproven.what), None));
    }
    let text = format!(
        "table {name}: {} not on shard \"{}\" as they were",
        moved(unproven.differing),
        plan.target.shard_key
    );
    let mut detail = match (&unproven.example, &*unproven.what) {
        (None, what) => {
            format!("an earlier comparison found them, and the last one could not be made: {what}")
        }
        (Some(key), what) => format!(
            "one of them has the key {key} and {}; no client has changed it there since the cutover",
            if what == "missing on the target" { "is missing there" } else { what }
        ),
    };
    if target.run(&format!("SELECT {}", changes.are_of(table)))?.scalar() != Some("t") {
        let _ =
            write!(detail, "; the table there is not the one that the cutover opened: it was replaced since");
    }
    Err(refusal(plan, text, Some(detail)))
}

fn refusal(plan: &Plan, text: String, detail: Option<String>) -> SplitError {
    let (id, source) = (plan.id, &plan.source.shard_key);
    let can_go_back =
        try_transaction(|| reverse_split::of(id)).ok().flatten().is_some_and(|back| back.rests());
    let or = if can_go_back {
        format!("; or take the split back: SELECT shard_split_reverse({id})")
    } else {
        String::new()
    };
    let failure = Failure::new(SqlState::NOT_IN_STATE, text).hint(format!(
        "Nothing was deleted. SELECT * FROM shard_split_verification({id}) shows what was found. Find out which side is right and make both alike, then call shard_split_finish({id}) again{or}. If those of shard \"{source}\" may be lost: SELECT shard_split_finish({id}, accept_missing => true)."
    ));
    SplitError::Failed(match detail {
        Some(detail) => failure.detail(detail),
        None => failure,
    })
}

/// Commits the split to its end: from here on it cannot be reversed. If a reversal was requested meanwhile, the split
/// stays as it is.
pub fn go_on(id: i64) -> Result<()> {
    try_transaction(|| {
        let state = row::lock(id)?;
        if state.undoable {
            split_state::end::undo_ended(id);
        }
        Ok::<_, Failure>(())
    })?;
    reach(injection_points::FINISH_READY)?;
    Ok(())
}
