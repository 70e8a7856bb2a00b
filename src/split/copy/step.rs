//! One step of the engine.
//!
//! Invariant: after every commit on the target, the scope's rows there are exactly
//! the rows that the source held in one committed, durable snapshot S, restricted
//! to positions below each table's cursor; S and the cursors are committed in the
//! same transaction. So a crash anywhere resumes from what the target holds.

use super::compare::{self, Differences};
use super::foreign_keys::{self, RowsLook};
use super::window::{self, WindowBatch, WindowEntries};
use super::{apart, chunk, commit, leaves, queue_overflow, streams};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::shape::{Observation, TableShape};
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::progress::{self, CopyProgress};
use crate::agent::state::{consumed, is_gone};
use crate::agent::{known_column, seen, temporary};
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::quote::ident;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::transaction;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::copy::outcome::StepOutcome;
use crate::split::copy::partition_layout;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Counted, Engine, locks, stream_sessions};
use crate::split::injection_points::{self, reach};
use crate::split::table::{SplitTable, computed, triggers};
use crate::split::verify::concurrent;
use crate::split::{reads, reverse_preconditions, untrusted_code};
use std::time::{Duration, Instant};

/// The reason why reads are directed to the source again.
const COPIED_AGAIN: &str = ": rows are copied again";

/// Applies the window since the last step and, while there are any, the next chunks.
pub fn run(engine: &mut Engine) -> Result<StepOutcome> {
    reach(injection_points::STEP_BEGIN)?;
    stream_sessions::open_wished(&engine.tenure, &mut engine.sessions)?;
    let locks = locks::source_locks(&engine.tables);
    let now = observe_source_after(engine, &locks)?;
    reach(injection_points::STEP_SNAPSHOT)?;
    let (mut before, mut there) = begin_target(engine, &now)?;
    if before.draining {
        return queue_overflow::end_draining(&engine.tenure, &mut engine.sessions, before);
    }
    let restart = compare::restart(&engine.queues.counters, &before, &now);
    if let Some(why) = restart.filter(|_| before.again.is_none()) {
        remember_restart(engine.tenure.plan.id, &mut engine.sessions.target, before, why)?;
        (before, there) = begin_target(engine, &now)?;
    }
    let Engine { tenure, sessions, tables, queues, .. } = &mut *engine;
    apart::require(sessions.reader.shard(), &now.tables)?;
    apart::require(sessions.target.shard(), &there.tables)?;
    let lost = leaves::admit(&tenure.plan, &mut sessions.target, tables, &mut before, &there)?;
    let mut differences = compare::compare(&tenure.plan, tables, &queues.counters, &before, &now)?;
    differences.reset.extend(lost);
    if !differences.uncaptured.is_empty() {
        return capture_new_leaves(tenure, sessions, tables, differences, &now);
    }
    let entries = window::count(&mut sessions.reader, tables, queues, &before)?;
    let mut outcome = apply(engine, before, &now, differences, &entries)?;
    // The target is at S.
    let stands = outcome.progress.is_copied() && outcome.restarted.is_none();
    let compares = stands && concurrent::begin(engine, &outcome.progress)?;
    if outcome.is_empty() {
        engine.sessions.target.send("ROLLBACK")?;
        if !compares {
            engine.sessions.reader.run("COMMIT")?;
        }
        engine.sessions.target.finish()?;
    } else {
        match outcome.round.take() {
            None if compares => commit::commit_and_read_on(engine, &mut outcome, &now)?,
            None => commit::commit(engine, &mut outcome, &now)?,
            Some(round) => streams::run(engine, &mut outcome, &now, &round)?,
        }
    }
    if compares {
        concurrent::run(engine, &outcome.progress)?;
    }
    Ok(outcome)
}

/// 2. The first query of the transaction takes S; the counters are read in it.
pub fn observe_source(engine: &mut Engine) -> Result<Observation> {
    observe_source_after(engine, "")
}

/// Observes the source after the locks, in one message.
fn observe_source_after(engine: &mut Engine, locks: &str) -> Result<Observation> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, queues, .. } = engine;
    let reader = &mut sessions.reader;
    let mut questions = vec![consumed::asked(plan.id)];
    // The target's progress shows later whether it has no more than that.
    let known = queues.counted.take().map(|counted| counted.since);
    if let Some(since) = &known {
        questions.push(window::counting(reader, tables, since)?);
    }
    let look = seen.source.statements(reader, plan, Side::Source)?;
    let message = format!("{locks}; {look}; {}", questions.join("; "));
    let mut answers = reader.run_for_each(&message)?.into_iter();
    let looks = answers.next().unwrap_or_default();
    let now = seen.source.read(reader, plan, Side::Source, &looks)?;
    let counters = answers.next().unwrap_or_default();
    queues.counted = known.zip(answers.next()).map(|(since, rows)| Counted { since, rows: Some(rows) });
    let looked = untrusted_code::look_through(reader, plan, Side::Source, now.code())?;
    if seen.source.is_new() {
        temporary::require_known(reader, plan, Side::Source, temporary::ALL)?;
    }
    // In a cutover the target has been asked already, and its answer is still to be received. Code that is as it was
    // before the last step was looked through then, but the foreign keys are those of the last step.
    seen.is_to_watch |= looked || seen.source.is_new();
    seen.parents = now.tables.iter().flat_map(|table| table.parents().to_vec()).collect();
    queues.counters = consumed::read(reader.shard(), &counters)?;
    if let Some(split) = plan.reverse_of {
        reverse_preconditions::require_open(reader, split)?;
    }
    Ok(now)
}

/// 3. The target's transaction: only the current generation gets the progress row, and only now the cursors are read.
///    `source`: what this step has seen there.
pub fn begin_target(engine: &mut Engine, source: &Observation) -> Result<(CopyProgress, Observation)> {
    send_begin_target(engine)?;
    finish_begin_target(engine, source)
}

/// Sends the first part of this, so that the source is asked meanwhile.
pub fn send_begin_target(engine: &mut Engine) -> Result<()> {
    let Engine { tenure, sessions, tables, seen, .. } = engine;
    let plan = &tenure.plan;
    let id = plan.id;
    let begin = epoch::begin_statements(id, Side::Target, tenure.generation);
    let locks = locks::target_locks_with_referenced(tables, &seen.watched);
    // The structure of the tables is read under these locks, together with the cursors.
    let look = seen.target.statements(&mut sessions.target, plan, Side::Target)?;
    let message = format!("{begin}; {locks}; {}; {look}", progress::locked(id));
    sessions.target.send(&message)?;
    Ok(())
}

pub fn finish_begin_target(engine: &mut Engine, source: &Observation) -> Result<(CopyProgress, Observation)> {
    let outcome = engine.sessions.target.finish_for_each();
    let answers = match epoch::begun(&mut engine.sessions.target, outcome) {
        Err(SplitError::Remote(error)) => return Err(watch_again(engine, error)),
        answers => answers?,
    };
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, .. } = engine;
    let [.., row, looks] = answers.as_slice() else { return Err(SplitError::Superseded) };
    let progress = progress::read_from(&sessions.target, plan, row)?;
    let now = seen.target.read(&mut sessions.target, plan, Side::Target, looks)?;
    let looked = untrusted_code::look_through(&mut sessions.target, plan, Side::Target, now.code())?;
    if seen.target.is_new() {
        temporary::require_known(&mut sessions.target, plan, Side::Target, temporary::ALL)?;
    }
    if looked || seen.target.is_new() || seen.is_to_watch {
        let locked = seen.watched.referenced();
        seen.watch(plan, sessions, tables)?;
        if !seen.watched.referenced().is_subset(&locked) {
            return Err(foreign_keys::have_changed(&sessions.target));
        }
    }
    check_target(plan, tables, &progress, source, &now)?;
    Ok((progress, now))
}

/// Handles a referenced table that was renamed, or dropped with the table that references it.
fn watch_again(engine: &mut Engine, error: RemoteError) -> SplitError {
    if !is_gone(&error) {
        return error.into();
    }
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, .. } = engine;
    let before = seen.watched.referenced();
    let again = sessions
        .target
        .run("ROLLBACK")
        .map_err(SplitError::from)
        .and_then(|_| seen.watch(plan, sessions, tables));
    match again {
        Ok(()) if seen.watched.referenced() != before => SplitError::renamed(&error),
        Ok(()) => error.into(),
        Err(other) => other,
    }
}

/// Checks that the target's tables are still the ones that the split was installed for, and that nothing was added
/// that would change what is written.
fn check_target(
    plan: &Plan,
    tables: &[SplitTable],
    progress: &CopyProgress,
    source: &Observation,
    now: &Observation,
) -> Result<()> {
    for (position, (table, shape)) in tables.iter().zip(&now.tables).enumerate() {
        let after = shape.structure();
        let known = progress.tables.get(position).map_or("", |known| &known.target_structure);
        let before = [known, &table.target.structure()];
        let changed = before.iter().find(|before| !before.is_empty() && **before != after);
        let policy = plan.tables.get(position);
        let is_own = |column: &str| policy.is_some_and(|policy| computed::is_own(policy, column));
        let unkept = source.tables.get(position).and_then(|from| shape.unkept_promise(from, is_own));
        let (what, detail) = match (&shape.hazards, changed, unkept) {
            (Some(hazards), _, _) => (format!(", it has: {hazards}"), hazards.clone()),
            (None, Some(before), _) => (String::new(), format!("before: {before}; now: {after}")),
            (None, None, Some((promise, why))) => {
                let text = format!("constraint {}, deferrable, {why}", ident(&promise.name));
                (format!(", it has: {text}"), text)
            }
            (None, None, None) => continue,
        };
        let is_harmless = shape.hazards.is_none() && changed.is_some();
        let failure = Failure::new(
            SqlState::NOT_IN_STATE,
            format!("table {} changed on the target while rows move into it{what}", table.target.name),
        )
        .detail(detail)
        .hint("Undo the change and resume the split with the call that it stopped in. Or roll it back and start it again.");
        return Err(if is_harmless { SplitError::Reshaped(failure) } else { SplitError::Failed(failure) });
    }
    Ok(())
}

/// Stores the reason of a restart before anything is announced on the source, whose counters show that the target does
/// not fit them: with the next number they would fit again.
fn remember_restart(split: i64, target: &mut Connection, before: CopyProgress, why: String) -> Result<()> {
    progress::store(target, split, &CopyProgress { again: Some(why), ..before })?;
    target.run("COMMIT")?;
    reach(injection_points::RESTART_REMEMBERED)?;
    Ok(())
}

/// Creates triggers on a partition that is new on the source; the step is repeated afterwards, and copies it from its
/// beginning.
fn capture_new_leaves(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    tables: &mut [SplitTable],
    differences: Differences,
    now: &Observation,
) -> Result<StepOutcome> {
    sessions.target.run("ROLLBACK")?;
    sessions.reader.run("ROLLBACK")?;
    if transaction(|| split::replays_ddl(tenure.plan.id)) {
        // This comes first: once the partition is captured, nothing shows that it is new.
        let new = now.tables.iter().flat_map(TableShape::leaves).filter(|leaf| !leaf.captured);
        partition_layout::bring_new(tenure, sessions, tables, &new.map(|leaf| leaf.oid.clone()).collect())?;
    }
    let mut names = Vec::new();
    for position in differences.uncaptured {
        let fresh = seen::look(&mut sessions.control, &tenure.plan, Side::Source)?;
        if let (Some(table), Some(shape)) = (tables.get_mut(position), fresh.tables.into_iter().nth(position))
        {
            table.source = shape;
            triggers::install(
                &mut sessions.control,
                &tenure.plan,
                std::slice::from_ref(table),
                Side::Source,
            )?;
            names.push(table.source.name.clone());
        }
    }
    Err(SplitError::Retry(format!("the new partitions of {} to be captured", names.join(", "))))
}

/// 4. and 5. Applies the window of every table, then copies chunks until the step's time is used.
pub fn apply(
    engine: &mut Engine,
    mut progress: CopyProgress,
    now: &Observation,
    differences: Differences,
    entries: &[WindowEntries],
) -> Result<StepOutcome> {
    let was_copied = progress.is_copied() && progress.snapshot.is_some();
    let mut restarted = differences.restart;
    if restarted.is_none() && engine.queues.counters.overflowed {
        return Err(restart_after_overflow(engine, &progress)?);
    }
    let resets = tables_to_reset(&differences.reset, entries, restarted.is_some(), engine.tables.len());
    let replaced = restarted.as_deref().unwrap_or(REPLACED);
    reverse_preconditions::require_proven(&engine.tenure.plan, &with_rows(&progress, &resets), replaced)?;
    if !resets.is_empty() || !differences.grown.is_empty() {
        reads::require_none(engine.tenure.plan.id, COPIED_AGAIN)?;
    }
    reset(engine, &mut progress, &resets, now, &mut restarted)?;
    progress.again = None;
    for position in differences.grown.iter().filter(|position| !resets.contains(position)) {
        if let Some(shape) = now.tables.get(*position) {
            compare::grow(shape, &mut progress.tables[*position]);
        }
    }
    for (known, shape) in progress.tables.iter_mut().zip(&now.tables) {
        known.columns.get_or_insert_with(|| known_column::of(shape));
    }
    let (changes, lag) = apply_windows(engine, &mut progress, entries, &resets)?;
    reach(injection_points::STEP_WINDOW)?;
    progress.snapshot = Some(now.snapshot.clone());
    progress.server.clone_from(&now.server);
    let mut outcome =
        StepOutcome { progress, changes, chunks: 0, rows: 0, bytes: 0, lag, restarted, round: None };
    copy_chunks(engine, &mut outcome)?;
    let look = if was_copied && resets.is_empty() && outcome.chunks == 0 {
        RowsLook::Changed((0..entries.len()).filter(|position| entries[*position].rows > 0).collect())
    } else {
        RowsLook::All
    };
    foreign_keys::check_step(engine, &outcome.progress, &look)?;
    reach(injection_points::STEP_CHUNK)?;
    Ok(outcome)
}

/// Drains the queue of changes that has lost some, and returns the reason why the copy starts again.
fn restart_after_overflow(engine: &mut Engine, progress: &CopyProgress) -> Result<SplitError> {
    let all: Vec<usize> = (0..engine.tables.len()).collect();
    reverse_preconditions::require_proven(
        &engine.tenure.plan,
        &all,
        "the queue of changes was full or its lease had expired",
    )?;
    reads::require_none(engine.tenure.plan.id, COPIED_AGAIN)?;
    queue_overflow::tell_stopped(&engine.tenure.plan, &mut engine.sessions, &engine.tables)?;
    queue_overflow::drain_overflow(engine, progress)?;
    Ok(SplitError::Retry(
        "the copy to start again: the queue of changes was full or its lease had expired".into(),
    ))
}

/// Applies the windows of all tables. Returns the number of changes, and the time that they took without that on the
/// line.
fn apply_windows(
    engine: &mut Engine,
    progress: &mut CopyProgress,
    entries: &[WindowEntries],
    resets: &[usize],
) -> Result<(i64, Duration)> {
    let mut changes: i64 = 0;
    let (began, mut round_trips) = (Instant::now(), 0);
    for entry in entries {
        changes = changes.saturating_add(entry.rows);
        progress.last_event_at = progress.last_event_at.max(entry.newest);
    }
    for batch in WindowBatch::of(entries, resets) {
        let applied = window::apply(engine, &batch, progress)?;
        for (position, keys) in batch.tables.iter().zip(applied.keys) {
            let known = &mut progress.tables[*position].changes_applied;
            *known = known.saturating_add(keys);
        }
        round_trips += applied.round_trips;
    }
    progress.last_event_id = progress.last_event_id.saturating_add(changes);
    Ok((changes, began.elapsed().saturating_sub(engine.sessions.distance * round_trips)))
}

const REPLACED: &str = "truncated, rewritten or changed there, or one of its partitions is missing";

/// Deletes what the target has of tables that are copied anew, and resets their progress.
fn reset(
    engine: &mut Engine,
    progress: &mut CopyProgress,
    resets: &[usize],
    now: &Observation,
    restarted: &mut Option<String>,
) -> Result<()> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, .. } = engine;
    let key_identity = KeyIdentity::stored(progress, &plan.scope, Side::Target);
    for position in resets {
        let known = &progress.tables[*position];
        if !known.leaves.is_empty() {
            window::delete_scope(plan, sessions, &tables[*position], &key_identity)?;
            restarted.get_or_insert_with(|| {
                let name = &tables[*position].source.name;
                format!("table {name} was truncated, rewritten or changed, or has lost a partition")
            });
        }
        if let Some(shape) = now.tables.get(*position) {
            progress.tables[*position] = compare::fresh(shape, known);
        }
    }
    Ok(())
}

/// Returns those of these tables that may have rows on the target.
fn with_rows(progress: &CopyProgress, resets: &[usize]) -> Vec<usize> {
    let has_begun = |position: &&usize| !progress.tables[**position].leaves.is_empty();
    resets.iter().filter(has_begun).copied().collect()
}

fn tables_to_reset(differ: &[usize], entries: &[WindowEntries], all: bool, count: usize) -> Vec<usize> {
    (0..count)
        .filter(|position| {
            all || differ.contains(position) || entries.get(*position).is_some_and(|e| e.truncated)
        })
        .collect()
}

/// Copies chunks. Small tables share a step: all of it is read in the same S.
fn copy_chunks(engine: &mut Engine, outcome: &mut StepOutcome) -> Result<()> {
    let began = Instant::now();
    let enough = guc::step_time() / 2;
    if engine.pace.chunk_blocks == 0 {
        engine.pace.chunk_blocks = outcome.progress.first_chunk(engine.tenure.generation);
    }
    if !outcome.progress.is_copied() {
        engine.pace.throttle.look(&mut engine.sessions.target, engine.tenure.plan.id)?;
        if engine.pace.throttle.reason().is_some() {
            return Ok(());
        }
        outcome.round = streams::begin(engine, &outcome.progress)?;
        if outcome.round.is_some() {
            return Ok(());
        }
    }
    while let Some(copied) = chunk::copy_next(engine, &mut outcome.progress)? {
        outcome.add(&copied);
        let over_rate = guc::max_copy_rate()
            .is_some_and(|rate| outcome.bytes as f64 > rate as f64 * guc::step_time().as_secs_f64());
        if began.elapsed() >= enough || over_rate {
            break;
        }
    }
    Ok(())
}
