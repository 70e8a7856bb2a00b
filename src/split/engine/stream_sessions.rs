//! The sessions of streams: their number, and how they see what a step sees.
//!
//! What a step has checked holds to the end of its streams: they have locked the tables of both sides, and read S,
//! before the step releases its locks.

use crate::agent::error::{Result, SplitError};
use crate::agent::opening::LOCK_TIMEOUT;
use crate::agent::session::{self, Side};
use crate::agent::state::epoch;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::{CopyProgress, TableProgress};
use crate::agent::{self, temporary};
use crate::catalog::split::Plan;
use crate::catalog::{split, split_state};
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::transaction;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::stream::{StreamSessions, Streams};
use crate::split::engine::{StepMode, locks};
use crate::split::table::SplitTable;

/// The number of cores assumed for a server that does not report them.
const UNKNOWN: usize = 2;
/// The greatest number of streams that is chosen by cores.
const MOST_BY_CORES: usize = 8;

/// Opens the streams that the step before has asked for, while nothing is locked: a server may keep new connections
/// waiting.
pub fn open_wished(tenure: &Tenure, sessions: &mut EngineSessions) -> Result<()> {
    let wished = sessions.streams.wished;
    open(tenure, sessions, wished, ["reader", "writer"])
}

/// Opens streams that delete on the source what they show to be on the target. No transaction is open.
pub fn open_to_delete(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    mode: StepMode,
    progress: &CopyProgress,
) -> Result<()> {
    // After a failed attempt only one session is used: it shows the cause, or succeeds.
    if transaction(|| split_state::work::attempts(tenure.plan.id)) > 0 {
        return Ok(());
    }
    sessions.reader.run("BEGIN")?;
    sessions.target.run("BEGIN")?;
    let wished = wanted(tenure.plan.id, sessions, mode, progress, Locks::OfChunks)?.saturating_sub(1);
    sessions.streams.wished = wished;
    sessions.reader.run("ROLLBACK")?;
    sessions.target.run("ROLLBACK")?;
    open(tenure, sessions, wished, ["finish"; 2])?;
    for stream in &mut sessions.streams.open {
        stream.reader.run("SET session_replication_role = replica")?;
    }
    Ok(())
}

/// The number of locks assumed for a leaf and its indexes.
const WITH_INDEXES: usize = 4;

/// What a stream locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// The tables of its chunk, and of the step's own.
    OfChunks,
    OfAllTables,
}

/// Returns how many chunks or batches are wanted at the same time.
pub fn wanted(
    split: i64,
    sessions: &mut EngineSessions,
    mode: StepMode,
    progress: &CopyProgress,
    locks: Locks,
) -> Result<usize> {
    // Writers wait, or more load must not disturb clients.
    if mode.is_last() || guc::max_copy_rate().is_some() {
        return Ok(1);
    }
    let wished = match guc::copy_streams() {
        0 => by_cores(sessions)?,
        set => set,
    };
    if wished < 2 {
        return Ok(wished);
    }
    let most = by_locks(sessions, progress, locks)?;
    if most < wished {
        tell_of_locks(split, &mut sessions.streams, most, wished);
    }
    Ok(wished.min(most))
}

/// Reports a lack of locks, once for each worker.
fn tell_of_locks(split: i64, streams: &mut Streams, most: usize, wished: usize) {
    if std::mem::replace(&mut streams.lacks_locks, true) {
        return;
    }
    let text = format!(
        "{most} of {wished} streams (shardmaster.copy_streams): more would need over a quarter of the shards' lock table (max_locks_per_transaction)"
    );
    transaction(|| split::event(split, None, None, &text));
}

/// Returns the number of streams that the lock table has room for. All sessions of a server share it, and a stream
/// locks every partition of its tables: a quarter is for the streams, so that clients find room.
fn by_locks(sessions: &mut EngineSessions, progress: &CopyProgress, locks: Locks) -> Result<usize> {
    let quarter = match sessions.streams.room {
        Some(known) => known,
        None => room(sessions)? / 4,
    };
    sessions.streams.room = Some(quarter);
    let is_copied = progress.is_copied();
    let counts = progress.tables.iter().filter(|table| is_copied || !table.is_copied()).map(locks_of);
    let counts: Vec<usize> = match locks {
        Locks::OfAllTables => progress.tables.iter().map(locks_of).collect(),
        Locks::OfChunks => {
            // At most two tables are counted; each round knows whether there are more.
            let mut counts: Vec<usize> = counts.collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts.truncate(2);
            counts
        }
    };
    Ok((quarter / counts.iter().sum::<usize>().max(1)).max(1))
}

/// Returns the locks of a table: itself, its queue, and its partitions, each with its indexes, which are not counted
/// exactly.
fn locks_of(table: &TableProgress) -> usize {
    let target = table.target_leaves.as_ref().map_or(0, Vec::len);
    table.leaves.len().max(target).saturating_add(2).saturating_mul(WITH_INDEXES)
}

/// Returns for how many of the first streams there is room, each of which locks the tables at these positions. If it
/// is fewer than all, that is reported.
pub fn fit(split: i64, streams: &mut Streams, progress: &CopyProgress, of: &[Vec<usize>]) -> usize {
    let mut left = streams.room.unwrap_or(usize::MAX);
    let fits = |positions: &&Vec<usize>| {
        let locks: usize = positions.iter().filter_map(|at| progress.tables.get(*at)).map(locks_of).sum();
        let is_room = locks <= left;
        left = left.saturating_sub(locks);
        is_room
    };
    let count = of.iter().take_while(fits).count();
    if count < of.len() {
        // The step's own session is one of them.
        tell_of_locks(split, streams, count + 1, of.len() + 1);
    }
    count
}

/// Returns the number of locks that the smaller side has room for.
fn room(sessions: &mut EngineSessions) -> Result<usize> {
    const ROOM: &str = "SELECT current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)";
    let mut room = sessions.reader.count("the room for locks", ROOM)?;
    room = room.min(sessions.target.count("the room for locks", ROOM)?);
    Ok(usize::try_from(room).unwrap_or(0))
}

/// Returns half of the cores of the smaller side: the rest is for its clients.
fn by_cores(sessions: &mut EngineSessions) -> Result<usize> {
    if let Some(known) = sessions.streams.by_cores {
        return Ok(known);
    }
    let (source, target) = (cores(&mut sessions.reader)?, cores(&mut sessions.target)?);
    let half = |cores: usize| (cores / 2).clamp(1, MOST_BY_CORES);
    let count = [source, target].into_iter().flatten().min().map_or(UNKNOWN, half);
    sessions.streams.by_cores = Some(count);
    Ok(count)
}

/// Returns the number of cores of a server's host, which Linux lists as 0-3,6. Returns None if the mover may not read
/// the list, or there is no such file.
fn cores(session: &mut Connection) -> Result<Option<usize>> {
    const MAY_READ: &str = "pg_has_role('pg_read_server_files', 'USAGE') AND
        has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE')";
    const LISTED: &str = "SELECT pg_read_file('/sys/devices/system/cpu/online', 0, 1000, true)";
    let may = session.run(&format!("SELECT {MAY_READ}"))?;
    if may.scalar() != Some("t") {
        return Ok(None);
    }
    session.run("SAVEPOINT cores")?;
    // A failure to read it is no reason not to copy.
    let listed = match session.run(LISTED) {
        Ok(rows) => rows.scalar().and_then(counted),
        Err(error) if error.sqlstate.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    session.run("ROLLBACK TO SAVEPOINT cores; RELEASE SAVEPOINT cores")?;
    Ok(listed)
}

fn counted(listed: &str) -> Option<usize> {
    let part = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        to.checked_sub(from)?.checked_add(1)
    };
    listed.trim().split(',').map(part).sum()
}

/// Opens missing sessions. If a server admits no more, fewer are used.
fn open(tenure: &Tenure, sessions: &mut EngineSessions, count: usize, purposes: [&str; 2]) -> Result<()> {
    while sessions.streams.open.len() < count && !sessions.streams.is_short {
        match open_one(tenure, sessions, purposes) {
            Ok(stream) => sessions.streams.open.push(stream),
            // The step's own sessions show whether the server is reachable at all.
            Err(SplitError::Remote(error)) => {
                sessions.streams.is_short = true;
                let text = format!(
                    "only {} streams work (shardmaster.copy_streams): {error}",
                    sessions.streams.open.len() + 1
                );
                transaction(|| split::event(tenure.plan.id, None, None, &text));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a pair; `purposes` are shown in pg_stat_activity.
fn open_one(
    tenure: &Tenure,
    sessions: &EngineSessions,
    [reading, writing]: [&str; 2],
) -> Result<StreamSessions> {
    let plan = &tenure.plan;
    let mut reader = tenure.open(Side::Source, reading)?;
    session::require_one_server(&reader, &sessions.reader)?;
    let mut writer = tenure.open(Side::Target, writing)?;
    session::require_one_server(&writer, &sessions.target)?;
    // The next worker ends them.
    epoch::register(&mut reader, plan, Side::Source)?;
    epoch::register(&mut writer, plan, Side::Target)?;
    writer.run(&agent::stray(plan))?;
    Ok(StreamSessions { reader, writer, prepared: None })
}

/// How long a stream waits for a lock that the step has: a session that waits for a stronger one comes first.
pub const SHORTLY: &str = "SET LOCAL lock_timeout = '100ms'";
/// The SQLSTATE of a full lock table.
const OUT_OF_MEMORY: &str = "53200";

/// Makes streams read S and lock what the step has locked, each the tables at these positions. Returns how many of the
/// first ones do. A reader takes its locks before it imports S, and S can be imported only while the step holds both:
/// so nothing has changed in between. What a stream neither reads nor writes may change as between two steps.
pub fn hold(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    of: &[Vec<usize>],
) -> Result<usize> {
    let exported = sessions.reader.run("SELECT pg_export_snapshot()")?;
    let snapshot = exported.scalar().ok_or_else(|| nothing_exported(&sessions.reader))?;
    let snapshot = literal(snapshot);
    let count = of.len().min(sessions.streams.open.len());
    let EngineSessions { reader, streams, .. } = sessions;
    let streams = &mut streams.open[..count];
    for (stream, of) in streams.iter_mut().zip(of) {
        let tables: Vec<&SplitTable> = of.iter().filter_map(|position| tables.get(*position)).collect();
        let into_snapshot = locks::source_locks_within(&tables, SHORTLY);
        let read = format!("{into_snapshot}; SET TRANSACTION SNAPSHOT {snapshot}; {}", as_a_step());
        stream.reader.send(&read)?;
        stream.writer.send(&begin_writing(tenure.plan.id, tenure.generation, &tables))?;
    }
    let mut ready = Vec::new();
    for stream in streams.iter_mut() {
        let (read, written) = (stream.reader.finish(), stream.writer.finish());
        let read = read.map_err(|error| unread(reader, error));
        ready.push(has_locked(read)? & has_locked(epoch::begun(&mut stream.writer, written))?);
    }
    let first = ready.iter().take_while(|is_ready| **is_ready).count();
    // A stream whose locks another session waits for keeps none.
    for stream in &mut streams[first..] {
        stream.reader.run("ROLLBACK")?;
        stream.writer.run("ROLLBACK")?;
    }
    Ok(first)
}

/// Makes the open and wanted streams do this for all tables, for as long as the step reads S.
pub fn hold_open(tenure: &Tenure, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    sessions.streams.open.truncate(sessions.streams.wished);
    let count = sessions.streams.open.len();
    let all: Vec<usize> = (0..tables.len()).collect();
    sessions.streams.held = if count == 0 { 0 } else { hold(tenure, sessions, tables, &vec![all; count])? };
    require_known(&tenure.plan, &mut sessions.streams)
}

/// Requires that the temporary tables of comparisons fit the tables as they are under these locks.
fn require_known(plan: &Plan, streams: &mut Streams) -> Result<()> {
    let asked = [Side::Source, Side::Target].map(|side| temporary::asked(plan, side, temporary::COMPARED));
    let prepared = streams.open.iter_mut().take(streams.held).filter(|stream| stream.prepared.is_some());
    let (mut sessions, mut questions) = (Vec::new(), Vec::new());
    for StreamSessions { reader, writer, .. } in prepared {
        sessions.extend([reader, writer]);
        questions.extend(asked.clone().map(Some));
    }
    let answers = Connection::ask_all(&mut sessions, &questions, guc::remote_timeout())?;
    for (session, answer) in sessions.iter().zip(answers) {
        temporary::require_none(session.shard(), &answer.transpose()?.unwrap_or_default())?;
    }
    Ok(())
}

/// Ends the streams' transactions: they have read what they had to read, and have written nothing.
pub fn let_go(streams: &mut Streams) -> Result<()> {
    let held = std::mem::take(&mut streams.held);
    let streams = streams.open.iter_mut().take(held);
    end_all(streams.flat_map(|StreamSessions { reader, writer, .. }| [reader, writer]), "ROLLBACK")
}

/// Ends transactions at the same time.
pub fn end_all<'a>(sessions: impl Iterator<Item = &'a mut Connection>, by: &str) -> Result<()> {
    let mut asked = Vec::new();
    for session in sessions {
        session.send(by)?;
        asked.push(session);
    }
    asked.into_iter().try_for_each(|session| session.finish().map(drop))?;
    Ok(())
}

/// Returns the error of a stream that could not read S. If the session that has S is gone, this is the cause, and the
/// next worker takes another snapshot.
fn unread(reader: &mut Connection, error: RemoteError) -> RemoteError {
    if error.is_transient() { error } else { reader.run("SELECT 1").err().unwrap_or(error) }
}

fn nothing_exported(reader: &Connection) -> SplitError {
    let shard = reader.shard();
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("shard \"{shard}\" has exported no snapshot"),
        "Set shardmaster.copy_streams to 1 and resume the split.",
    )
}

/// Returns the statement that lets a stream wait for others' rows as long as a step does.
pub fn as_a_step() -> String {
    format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
}

fn begin_writing(split: i64, generation: i64, tables: &[&SplitTable]) -> String {
    let begin = epoch::begin_statements(split, Side::Target, generation);
    format!("{begin}; {SHORTLY}; {}; {}", locks::target_locks_of(tables), as_a_step())
}

/// Begins the step's own transaction on the target, once it has committed one, while its streams still have theirs.
/// Returns false if another session is in the way, which waits for the streams; they must then release their locks.
pub fn begin_again(tenure: &Tenure, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<bool> {
    let begin = begin_writing(tenure.plan.id, tenure.generation, &tables.iter().collect::<Vec<_>>());
    let begun = sessions.target.run(&begin);
    if !has_locked(epoch::begun(&mut sessions.target, begun))? {
        return Ok(false);
    }
    // Each stream has held what this session continues with: if one of them still does, no other session had it in
    // between.
    if let Some(stream) = sessions.streams.open.first_mut() {
        stream.writer.run("SELECT 1")?;
    }
    Ok(true)
}

/// Returns false if another session is in the way, or the server has no room for more locks.
fn has_locked<T>(outcome: std::result::Result<T, impl Into<SplitError>>) -> Result<bool> {
    match outcome.map_err(Into::into) {
        Ok(_) => Ok(true),
        Err(error) if is_in_the_way(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another session is in the way, or the server has no room for more locks: one session may succeed when
/// several do not.
pub fn is_in_the_way(error: &SplitError) -> bool {
    matches!(error, SplitError::Remote(error) if error.is_lock_timeout() || error.is(OUT_OF_MEMORY))
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn cores_are_counted() {
        assert_eq!(counted("0-3\n"), Some(4));
        assert_eq!(counted("0"), Some(1));
        assert_eq!(counted("0-3,6,8-9\n"), Some(7));
        for wrong in ["", "x", "3-1", "0-", "-1", "0-18446744073709551615"] {
            assert_eq!(counted(wrong), None, "{wrong}");
        }
    }
}
