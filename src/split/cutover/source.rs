//! The source on either side of a decision: it is opened again, or what it took without its fence is counted.

use crate::agent::error::Result;
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::state::side::{self, Version};
use crate::agent::state::{consumed, epoch, overflow, progress, queue};
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::copy::window;
use crate::split::engine::Engine;

/// Opens the source for writes again, and removes its note of a decision in the same commit.
pub fn reopen(source: &mut Connection, split: i64, generation: i64) -> Result<()> {
    epoch::begin_as(source, split, Side::Source, generation)?;
    side::REOPEN.write(source, split, Version::None)?;
    source.run(&format!("{}; COMMIT", consumed::forget_decision(split)))?;
    Ok(())
}

/// Counts changes on the source that no window has taken and none will.
pub fn stray_changes(engine: &mut Engine) -> Result<i64> {
    let progress = progress::stored(&mut engine.sessions.target, &engine.tenure.plan)?.unwrap_or_default();
    let server = seen::look(&mut engine.sessions.control, &engine.tenure.plan, Side::Source)?.server;
    let was_set_back = consumed::counters(&mut engine.sessions.reader, engine.tenure.plan.id)?
        .disagreement(progress.steps)
        .is_some();
    // On another server, or another timeline, the last window's transaction ids are given out again: then only what
    // the source itself remembers counts.
    let is_same = server == progress.server && !was_set_back;
    let snapshot = if is_same {
        progress.snapshot
    } else {
        consumed::snapshot(&mut engine.sessions.control, engine.tenure.plan.id)?
    };
    unseen_entries(engine, snapshot.as_deref())
}

/// Counts queued changes that a snapshot has not seen; without a snapshot, all of them.
pub fn unseen_entries(engine: &mut Engine, snapshot: Option<&str>) -> Result<i64> {
    let query = unseen_query(engine, &queue::is_new(snapshot));
    Ok(engine.sessions.control.count(UNSEEN, &query)?)
}

/// The name of their number in errors.
pub const UNSEEN: &str = "the number of changes in a queue";

/// Prepares the query by snapshot, so that nobody waits for its planning behind a fence.
pub fn prepare_unseen(engine: &mut Engine) -> Result<()> {
    let query = unseen_query(engine, &queue::is_new_since("$1"));
    engine.sessions.control.prepare(PREPARED, &query)?;
    engine.sessions.control.run(&window::alone(&format!("EXECUTE {PREPARED}(pg_current_snapshot())")))?;
    Ok(())
}

/// Returns the statements that run it, of which one gives rows.
pub fn unseen(snapshot: &str) -> String {
    window::alone(&format!("EXECUTE {PREPARED}({})", literal(snapshot)))
}

const PREPARED: &str = "unseen";

fn unseen_query(engine: &Engine, condition: &str) -> String {
    let mut counts: Vec<String> =
        engine.tables.iter().map(|t| format!("({})", queue::count(&t.queue, condition))).collect();
    // Each of these transactions made at least one change.
    counts.push(format!("({})", overflow::count(engine.tenure.plan.id, condition)));
    format!("SELECT {}", counts.join(" + "))
}
