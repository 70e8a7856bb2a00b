//! After a crash: what master, source and target say decides how it goes on. By
//! then no session of an earlier worker is left, and the generation is ours.

use super::cutover;
use super::engine::{self, Engine};
use super::error::{Result, SplitError};
use super::fence;
use super::phase::{CutoverStep, Phase};
use super::points::{self, reach};
use super::progress::Progress;
use super::quote::literal;
use super::session::Side;
use super::step::Outcome;
use crate::catalog::{routing, split};
use crate::error::Failure;
use crate::guc;
use crate::worker::txn::{transaction, try_transaction};
use std::time::{Duration, Instant};

/// Settles what an interrupted cutover left before its decision.
pub fn settle(engine: &mut Engine, state: &split::State) -> Result<()> {
    if state.phase == Phase::Completed {
        return Ok(());
    }
    let id = engine.plan.id;
    let (source, moved) = fence::state(&mut engine.control, id, Side::Source)?;
    let (target, opened) = fence::state(&mut engine.target, id, Side::Target)?;
    // A shard that was told of a decision which the master does not know: the
    // master lost it (it failed over, or was restored), and takes it from there.
    let lost = if target == "open" { opened } else { None }.or(if source == "moved" { moved } else { None });
    if let Some(version) = lost {
        return adopt(engine, version);
    }
    if source == "fenced" {
        // The target is closed, so no client has written there: going back is safe.
        fence::change_state(
            &mut engine.control,
            id,
            Side::Source,
            engine.generation,
            &["fenced"],
            "capture",
            None,
        )?;
    }
    if state.cutover_step != CutoverStep::None {
        try_transaction(|| {
            routing::set_back(&engine.plan.keyspace, &engine.plan.entries, &engine.plan.source.shard_key)
                .map_err(Failure::from)?;
            cutover::set_step(id, CutoverStep::None);
            split::event(id, None, None, "the cutover was set back: the source takes writes again");
            Ok::<_, SplitError>(())
        })?;
    }
    Ok(())
}

fn adopt(engine: &mut Engine, version: i64) -> Result<()> {
    let progress = stored_progress(engine)?;
    let outcome =
        Outcome { progress, changes: 0, chunks: 0, rows: 0, bytes: 0, lag: Duration::ZERO, restarted: None };
    transaction(|| {
        split::event(engine.plan.id, None, None, "the shards know a decision that this master had lost")
    });
    cutover::decide(engine, &outcome, Some(version))?;
    Ok(())
}

fn stored_progress(engine: &mut Engine) -> Result<Progress> {
    let rows = engine
        .target
        .run(&format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {}", engine.plan.id))?;
    Ok(rows.scalar().and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default())
}

/// Carries a decided cutover to its end.
pub fn complete(engine: &mut Engine, version: i64) -> Result<()> {
    cutover::open_target(engine, version)?;
    reach(points::CUTOVER_OPENED)?;
    let (state, _) = fence::state(&mut engine.control, engine.plan.id, Side::Source)?;
    if state == "capture" {
        fence_again(engine)?;
    }
    let mut session = fence::open(engine)?;
    cutover::move_source(&mut session, engine, version)?;
    reach(points::CUTOVER_MOVED)?;
    cutover::record_moved(engine, None);
    Ok(())
}

/// A source that lost its fence (it failed over) takes writes for keys that have
/// moved: it is fenced at once, and what it has taken is reported.
fn fence_again(engine: &mut Engine) -> Result<()> {
    let mut session = fence::open(engine)?;
    let deadline = Instant::now() + guc::cutover_timeout();
    fence::lock(engine, &mut session, deadline, |_| Ok(()), |_| Ok(()))?;
    let (id, generation) = (engine.plan.id, engine.generation);
    if !fence::change_state(&mut session, id, Side::Source, generation, &["capture"], "fenced", None)? {
        return Err(SplitError::Superseded);
    }
    let progress = stored_progress(engine)?;
    let server = engine::observe(&mut engine.control, &engine.plan, Side::Source)?.server;
    // On another server, or another timeline, the last window's transaction ids are
    // given out again: there only what the source itself remembers counts.
    let snapshot = if server == progress.server { progress.snapshot } else { consumed_snapshot(engine)? };
    let unseen = unseen_entries(engine, snapshot.as_deref())?;
    let text = format!(
        "the source had lost its fence and was fenced again; {unseen} changes were made there after the last window"
    );
    transaction(|| split::event(id, None, None, &text));
    Ok(())
}

/// The snapshot up to which the source has given its queue away.
fn consumed_snapshot(engine: &mut Engine) -> Result<Option<String>> {
    let rows = engine.control.run(&format!(
        "SELECT snapshot FROM shardmaster_agent.consumed WHERE split_id = {}",
        engine.plan.id
    ))?;
    Ok(rows.scalar().map(str::to_owned))
}

/// Queued changes that a snapshot has not seen; without one, all of them.
pub fn unseen_entries(engine: &mut Engine, snapshot: Option<&str>) -> Result<i64> {
    let condition = snapshot.map_or("true".to_owned(), |snapshot| {
        format!("NOT pg_visible_in_snapshot(xid, {}::pg_snapshot)", literal(snapshot))
    });
    let counts: Vec<String> = engine
        .tables
        .iter()
        .map(|t| format!("(SELECT count(*) FROM {} WHERE {condition})", t.queue))
        .collect();
    let rows = engine.control.run(&format!("SELECT {}", counts.join(" + ")))?;
    Ok(rows.scalar().and_then(|n| n.parse().ok()).unwrap_or(0))
}
