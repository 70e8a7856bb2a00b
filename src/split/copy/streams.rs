//! Several chunks at the same time. A step brings the target to S and commits; then streams, each with a reader of S
//! and a writer of its own, copy a chunk each, and commit one after the other, each with the cursors behind its own
//! chunk.
//!
//! Invariant: as of a step, after each of these commits. What is on the target is what S held below the cursors, so a
//! crash anywhere resumes from there, and a window finds each row on one side of a cursor. Chunks are committed in
//! their order, not as they finish: a chunk beyond a missing one would be rows that no cursor covers.

use super::chunk::{self, Chunk};
use super::outcome::{Round, StepOutcome};
use super::{commit, leaves};
use crate::agent::error::Result;
use crate::agent::shape::Observation;
use crate::agent::state::progress::{self, CopyProgress};
use crate::remote::copy::Copied;
use crate::split::engine::Engine;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::stream::StreamSessions;
use crate::split::engine::stream_sessions::{self, Locks, hold, wanted};
use crate::split::injection_points::{self, reach};
use std::time::{Duration, Instant};

/// Plans the next chunks and makes the streams hold the step's snapshot and its locks. Returns None if the step copies
/// alone. The last chunk of all is always a step's, which checks everything once more.
pub fn begin(engine: &mut Engine, progress: &CopyProgress) -> Result<Option<Round>> {
    let wanted = wanted(engine.tenure.plan.id, &mut engine.sessions, engine.mode, progress, Locks::OfChunks)?;
    let left = chunk::left(progress, engine.pace.chunk_blocks).saturating_sub(1);
    engine.sessions.streams.wished = wanted.min(left).saturating_sub(1);
    // If fewer streams are wanted, their sessions are closed.
    engine.sessions.streams.open.truncate(engine.sessions.streams.wished);
    // If an earlier worker has failed, the step copies alone, so that a failing chunk shows why.
    if std::mem::take(&mut engine.sessions.streams.rest)
        || engine.sessions.streams.open.is_empty()
        || progress.failed_since(engine.tenure.generation) > 0
    {
        return Ok(None);
    }
    let planned = chunk::plan(engine, progress, engine.sessions.streams.open.len() + 1)?;
    let mut chunks = planned.chunks;
    if !planned.has_rest {
        chunks.pop();
    }
    if chunks.len() < 2 {
        return Ok(None);
    }
    // The first chunk is the step's own, whose locks on the target end with its commit. Until the step has them again,
    // each stream holds these locks, too; otherwise a session that waits behind the step would get the table, and
    // could put its own code on it.
    let own = chunks.first().map(Chunk::tables).unwrap_or_default();
    let of_stream = |chunk: &Chunk| [own.clone(), chunk.tables()].concat();
    let of: Vec<Vec<usize>> = chunks.iter().skip(1).map(of_stream).collect();
    let fits = stream_sessions::fit(engine.tenure.plan.id, &mut engine.sessions.streams, progress, &of);
    let ready = hold(&engine.tenure, &mut engine.sessions, &engine.tables, &of[..fits])?;
    chunks.truncate(ready + 1);
    Ok((chunks.len() > 1).then_some(Round { chunks }))
}

/// Commits the step, then copies the chunks and commits each.
pub fn run(engine: &mut Engine, outcome: &mut StepOutcome, now: &Observation, round: &Round) -> Result<()> {
    // If the worker fails after this each time, nothing has advanced, and the next one must try less.
    commit::commit_before_chunks(engine, outcome, now)?;
    reach(injection_points::STREAMS_BEGUN)?;
    if !stream_sessions::begin_again(&engine.tenure, &mut engine.sessions, &engine.tables)? {
        return give_up(&mut engine.sessions, round);
    }
    let began = Instant::now();
    let copied = copy(engine, round)?;
    let took = began.elapsed();
    reach(injection_points::STREAMS_COPIED)?;
    // Nothing is written after this check.
    leaves::check_unchanged(engine, &outcome.progress)?;
    commit_each(engine, outcome, round, &copied, took)?;
    let Engine { sessions: EngineSessions { reader, streams, .. }, .. } = engine;
    let others = streams.beside(round.chunks.len()).iter_mut().map(|stream| &mut stream.reader);
    stream_sessions::end_all(std::iter::once(reader).chain(others), "COMMIT")
}

/// Ends a round because another session waits for the target's tables, which the streams would block as long as the
/// step waits behind that session. The target has all changes of S; the chunks are left to the next step.
fn give_up(sessions: &mut EngineSessions, round: &Round) -> Result<()> {
    let EngineSessions { reader, streams, .. } = sessions;
    streams.rest = true;
    let others = streams.beside(round.chunks.len()).iter_mut();
    let others = others.flat_map(|StreamSessions { reader, writer, .. }| [writer, reader]);
    stream_sessions::end_all(others.chain([reader]), "ROLLBACK")
}

/// Copies the chunks. A stream whose chunk has no row has sent nothing yet: this checks that it still has its locks.
fn copy(engine: &mut Engine, round: &Round) -> Result<Vec<Vec<Copied>>> {
    let copied = chunk::copy(engine, &round.chunks)?;
    let streams = engine.sessions.streams.open.iter_mut().zip(copied.iter().skip(1));
    for (stream, _) in streams.filter(|(_, copied)| copied.is_empty()) {
        stream.writer.run("SELECT 1")?;
    }
    Ok(copied)
}

/// Commits each chunk with the cursors behind it. The generation cannot have been overtaken: each stream has it
/// locked.
fn commit_each(
    engine: &mut Engine,
    outcome: &mut StepOutcome,
    round: &Round,
    copied: &[Vec<Copied>],
    took: Duration,
) -> Result<()> {
    outcome.progress.worker = engine.tenure.generation;
    let spans = round.chunks.iter().zip(copied).filter(|(chunk, _)| chunk.is_whole());
    if let Some((chunk, copied)) = spans.max_by_key(|(_, copied)| bytes_of(copied)) {
        chunk.adapt(&mut engine.pace, &mut outcome.progress, took, copied);
    }
    for (number, (chunk, copied)) in round.chunks.iter().zip(copied).enumerate() {
        let parts = chunk.note(&mut outcome.progress, copied);
        let store = progress::storing(engine.tenure.plan.id, &outcome.progress);
        let writer = match number.checked_sub(1) {
            None => &mut engine.sessions.target,
            Some(stream) => &mut engine.sessions.streams.open[stream].writer,
        };
        writer.run(&format!("{store}; COMMIT"))?;
        outcome.add(&parts);
        reach(injection_points::STREAM_COMMITTED)?;
    }
    Ok(())
}

fn bytes_of(copied: &[Copied]) -> u64 {
    copied.iter().map(|copied| copied.bytes).sum()
}
