//! Comparison by streams, once the step that brings the target to S is committed: all sessions of the target see its
//! windows then, and only the next step writes there.
//!
//! Invariant: each session of the target has the worker's generation and the tables locked from before the step lets
//! go of them, and each reader S. So what they see of either side is what the step has left.

use crate::agent::error::Result;
use crate::agent::state::progress::CopyProgress;
use crate::split::engine::verification::{Run, When};
use crate::split::engine::{Engine, stream_sessions};
use crate::split::reads;
use crate::split::verify::walk;

/// Returns whether streams are to compare, within a step whose target is at S. Otherwise the step has compared itself.
pub fn begin(engine: &mut Engine, progress: &CopyProgress) -> Result<bool> {
    let is_rest = std::mem::take(&mut engine.sessions.streams.rest);
    match engine.verification.as_ref().is_some_and(|run| !run.tables.is_empty()) {
        true if is_rest => {}
        true => stream_sessions::hold_open(&engine.tenure, &mut engine.sessions, &engine.tables)?,
        false => engine.sessions.streams.end(),
    }
    if engine.sessions.streams.held == 0 {
        compare(engine, progress)?;
    }
    Ok(engine.sessions.streams.held > 0)
}

/// Compares once the step is committed.
pub fn run(engine: &mut Engine, progress: &CopyProgress) -> Result<()> {
    if stream_sessions::begin_again(&engine.tenure, &mut engine.sessions, &engine.tables)? {
        compare(engine, progress)?;
        engine.sessions.target.run("ROLLBACK")?;
    } else {
        // The next step compares alone.
        engine.sessions.streams.rest = true
    }
    stream_sessions::let_go(&mut engine.sessions.streams)?;
    engine.sessions.reader.run("COMMIT")?;
    Ok(())
}

fn compare(engine: &mut Engine, progress: &CopyProgress) -> Result<()> {
    walk::slices(engine, progress, When::BeforeCutover)?;
    if engine.verification.as_ref().is_some_and(Run::has_found) {
        reads::require_none(engine.tenure.plan.id, ": rows differ there")?;
    }
    Ok(())
}
