//! How reverse splits end: with their split, or by having reversed it.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::epoch::Tenure;
use crate::catalog::reverse_split::{self, WayBack};
use crate::catalog::split_state::{CutoverStep, Goal, request};
use crate::catalog::{split, split_ledger};
use crate::error::{Failure, SqlState};
use crate::server::txn::{transaction, try_transaction};
use crate::split::end::finish;
use crate::split::injection_points::{self, reach};
use crate::split::reverse::arm::{drop_forgotten, look, take};
use crate::split::{install, record};
use crate::words::of_split;

/// Removes the reverse split of a split that ends in another way. `lost`: the side of the split that will not return.
pub fn remove(tenure: &Tenure, lost: Option<Side>) -> Result<()> {
    let there = tenure.plan.id;
    let Some(back) = try_transaction(|| reverse_split::of(there))? else {
        if lost == Some(Side::Target) || !transaction(|| split_ledger::has_sides(there)) {
            return Ok(());
        }
        return drop_forgotten(&mut tenure.open(Side::Target, "reverse split")?, &tenure.plan);
    };
    if back.is_decided() {
        // This master had forgotten that the split was decided, too: nothing of either is to be undone.
        return Ok(());
    }
    if !back.rests() {
        return Err(SplitError::Retry(taken_back_by(&back)));
    }
    // The reverse split's source is the split's target.
    let is_lost = lost == Some(Side::Target);
    if !is_lost && look(there, &tenure.identity)? {
        return Err(SplitError::Retry(taken_back_by(&back)));
    }
    let taken = take(back.id, &tenure.identity)?;
    if !is_lost {
        drop_side(&taken, Side::Source)?;
    }
    // A restored master may have forgotten that the reverse split had begun.
    if lost != Some(Side::Source) {
        drop_side(&taken, Side::Target)?;
    }
    try_transaction(|| {
        request::drop_reverse(back.id);
        record::rolled_back(back.id, false)?;
        if is_lost {
            split_ledger::reopen(back.id, Side::Source.as_str());
        }
        Ok(())
    })
}

/// Drops a side of the reverse split. A shard that was restored to an earlier time may not have it any more, and a
/// target has it only once the reverse split has begun.
fn drop_side(back: &Tenure, side: Side) -> Result<()> {
    match back.take_if_there(side, "reverse split")? {
        Some(mut session) => install::drop_side(&mut session, back.plan.id, side),
        None => Ok(()),
    }
}

fn taken_back_by(back: &WayBack) -> String {
    format!("split {}, which takes this one back", back.id)
}

/// Returns the error of a call that needs a reverse split.
pub fn has_none(there: i64) -> Failure {
    let why = match split::mapped_table(there) {
        Some(table) => format!("Columns of table {table} are mapped"),
        None => format!(
            "shardmaster.reverse was off when it was started, or the reverse split was dropped, as shard_split_events({there}) shows"
        ),
    };
    Failure::new(SqlState::NOT_IN_STATE, format!("split {there} has no reverse split"))
        .hint(format!("{why}: finish it, then plan a split in the other direction."))
}

/// Returns the error of a call that has to wait for the end of a reverse split.
pub fn under_way(there: i64, back: &WayBack) -> Failure {
    let (text, hint) = match back.goal {
        Goal::RolledBack => (
            "is being given back by",
            "SELECT shard_split_wait({id}, 'rolled_back') waits for that. SELECT * FROM shard_split_diagnose({id}) shows why it waits.",
        ),
        _ => ("is being taken back by", "SELECT shard_split_rollback({id}) ends that."),
    };
    Failure::new(SqlState::NOT_IN_STATE, format!("split {there} {text} split {}", back.id))
        .hint(of_split(hint, back.id))
}

/// Removes the split from its shards, since the reverse split has decided: nothing of the split is needed there any
/// more. A shard that is lost for the reverse split is lost for the split, too: `shard_cleanup` removes what it holds.
pub fn leave(tenure: &Tenure, back: &WayBack) -> Result<()> {
    if back.cutover_step != CutoverStep::Moved {
        return Err(SplitError::Retry(format!("split {} to complete its cutover", back.id)));
    }
    let plan = &tenure.plan;
    let lost = transaction(|| split::lost_shards(plan.id));
    for (side, shard) in [(Side::Source, &plan.source), (Side::Target, &plan.target)] {
        if lost.contains(&shard.shard_key) {
            continue;
        }
        if let Some(mut session) = tenure.take_if_there(side, "reversed")? {
            install::drop_side(&mut session, plan.id, side)?;
        }
        reach(injection_points::REVERSE_LEFT)?;
    }
    transaction(|| {
        finish::record_end(plan.id, finish::FinishEnding::Reversed);
        if lost.contains(&plan.target.shard_key) {
            split_ledger::reopen(plan.id, Side::Target.as_str());
        }
    });
    Ok(())
}
