//! The source on either side of a decision: it is opened again, or what it took without its fence is counted.

use crate::agent::error::Result;
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::state::side::{self, Version};
use crate::agent::state::{consumed, epoch, overflow, progress, queue};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::copy::window;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;

/// Opens the source for writes again, and removes its note of a decision in the same commit.
pub fn reopen(source: &mut Connection, split: i64, generation: i64) -> Result<()> {
    epoch::begin_as(source, split, Side::Source, generation)?;
    side::REOPEN.write(source, split, Version::None)?;
    source.run(&format!("{}; COMMIT", consumed::forget_decision(split)))?;
    Ok(())
}

/// Counts changes on the source that no window has taken and none will.
pub fn stray_changes(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<i64> {
    let progress = progress::stored(&mut sessions.target, plan)?.unwrap_or_default();
    let server = seen::look(&mut sessions.control, plan, Side::Source)?.server;
    let was_set_back =
        consumed::counters(&mut sessions.reader, plan.id)?.disagreement(progress.steps).is_some();
    // On another server, or another timeline, the last window's transaction ids are given out again: then only what
    // the source itself remembers counts.
    let is_same = server == progress.server && !was_set_back;
    let snapshot =
        if is_same { progress.snapshot } else { consumed::snapshot(&mut sessions.control, plan.id)? };
    unseen_entries(plan.id, &mut sessions.control, tables, snapshot.as_deref())
}

/// Counts queued changes that a snapshot has not seen; without a snapshot, all of them.
pub fn unseen_entries(
    split: i64,
    control: &mut Connection,
    tables: &[SplitTable],
    snapshot: Option<&str>,
) -> Result<i64> {
    let query = unseen_query(split, tables, &queue::is_new(snapshot));
    Ok(control.count(UNSEEN, &query)?)
}

/// The name of their number in errors.
pub const UNSEEN: &str = "the number of changes in a queue";

/// Prepares the query by snapshot, so that nobody waits for its planning behind a fence.
pub fn prepare_unseen(split: i64, control: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let query = unseen_query(split, tables, &queue::is_new_since("$1"));
    control.prepare(PREPARED, &query)?;
    control.run(&window::alone(&format!("EXECUTE {PREPARED}(pg_current_snapshot())")))?;
    Ok(())
}

/// Returns the statements that run it, of which one gives rows.
pub fn unseen(snapshot: &str) -> String {
    window::alone(&format!("EXECUTE {PREPARED}({})", literal(snapshot)))
}

const PREPARED: &str = "unseen";

fn unseen_query(split: i64, tables: &[SplitTable], condition: &str) -> String {
    let mut counts: Vec<String> =
        tables.iter().map(|t| format!("({})", queue::count(&t.queue, condition))).collect();
    // Each of these transactions made at least one change.
    counts.push(format!("({})", overflow::count(split, condition)));
    format!("SELECT {}", counts.join(" + "))
}
