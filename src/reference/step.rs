//! A step: a copy of reference tables becomes what its origin held in one committed, durable snapshot S.
//!
//! 1. On the shard, the row of progress is locked: no other session makes a step there until this one has ended, and
//!    the snapshot P that it is at is not newer than the next one of its origin.
//! 2. On the origin, the tables are locked against TRUNCATE and rewrites, then S is taken, and what must be known in
//!    it is read.
//! 3. Of each table the rows are copied whose keys were changed between P and S, or, if the queue does not show them,
//!    all.
//! 4. Progress is stored beside them; S is made durable on the origin; the shard commits.

use super::copies::{ReferenceCopy, ReferenceOrigin};
use super::merge::MergeRows;
use super::table::{self, ReferenceTable};
use super::task::{FitTables, Task};
use super::{conflict, install, points};
use crate::agent::database_identity;
use crate::agent::error::{Result, SplitError};
use crate::agent::reference::{queue_table, sequence};
use crate::agent::state::queue;
use crate::agent::state::reference::{self as rows, ReferenceProgress, SERVER, covers};
use crate::catalog::reference::{self, ReferencePlace, ReferenceSet};
use crate::reference::probe::{self, ReferenceLook, SeenSet, SetEnd};
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError};
use crate::server::injection::reach;
use crate::server::txn::transaction;
use std::collections::BTreeMap;

/// The number of consecutive reads that may find something that must be created first.
const LOOKS: u32 = 4;

/// The state of a copy after a step.
pub struct Stepped {
    /// The snapshot that it stands for.
    pub snapshot: Option<String>,
    /// The number of queue entries that it has applied.
    pub entries: i64,
}

/// The origin's record of a copy in S.
struct Moment {
    snapshot: String,
    server: String,
    /// The last step of this copy that it knows of: fewer, if it was restored to an earlier time.
    steps: i64,
    /// The copy has what the origin does not have, or nothing yet.
    is_ahead: bool,
    /// The queues have all changes since the copy.
    is_whole: bool,
    /// They are open, and all changes that none of them has are in S.
    is_complete: bool,
    is_open: bool,
}

pub fn step(task: &Task<'_>, origin: &mut ReferenceOrigin, copy: &mut ReferenceCopy) -> Result<Stepped> {
    for _ in 0..LOOKS {
        reach(points::BEGIN)?;
        let (reader, control) = origin.sessions(task)?;
        let (session, known) = copy.parts(task)?;
        require_said(reader, &task.set.origin)?;
        require_said(session, task.place)?;
        // The read names what is missing.
        if let Some((progress, here)) = begin_copy(task, session, known)? {
            if progress.snapshot.is_none() || is_another(task, &progress, &here) {
                tell_of_nothing(task);
            }
            let (moment, there) = begin_origin(task, reader, &progress)?;
            reach(points::SNAPSHOT)?;
            if known.there == there && known.here == here {
                return carry_out(task, reader, control, session, known, progress, moment);
            }
            reader.run("ROLLBACK")?;
            session.run("ROLLBACK")?;
        }
        *known = look_through(task, reader, control, session)?;
    }
    let shard = &task.place.shard.shard_key;
    Err(SplitError::Retry(format!("shard \"{shard}\": its tables or those of the origin keep changing")))
}

/// Requires that nothing is read or written with rights of the extension's owner because of a declaration by a role
/// without the right to make it.
fn require_said(session: &mut Connection, at: &ReferencePlace) -> Result<()> {
    match &at.unsaid {
        Some(unsaid) if database_identity::is_here(session, &at.shard, &unsaid.here)? => {
            Err(SplitError::Failed(unsaid.failure()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Records that a shard has nothing yet, so that it is given no keys, whatever was there before under its name.
fn tell_of_nothing(task: &Task<'_>) {
    transaction(|| reference::nothing_is_there(Some(task.set.id), &task.place.shard.shard_key));
}

/// Separates the states of a table on both ends when its rows were last copied; the character is in neither.
const ENDS: &str = "|";

fn mark(there: &SeenSet, here: &SeenSet) -> String {
    format!("{}{ENDS}{}", there.mark(), here.mark())
}

/// Whether a table of the copy is another one by now, or was written to past its guard: its contents are unknown.
fn is_another(task: &Task<'_>, progress: &ReferenceProgress, here: &ReferenceLook) -> bool {
    task.tables.iter().zip(&here.tables).any(|(member, seen)| {
        let before = progress.tables.get(&member.ordinal.to_string());
        before.and_then(|mark| mark.split_once(ENDS)).is_some_and(|(_, before)| before != seen.mark())
    })
}

/// Begins on the copy. Returns None if a table is missing.
fn begin_copy(
    task: &Task<'_>,
    session: &mut Connection,
    known: &FitTables,
) -> Result<Option<(ReferenceProgress, ReferenceLook)>> {
    let shard = &task.place.shard;
    let look = probe::statements(session, task.set, task.tables, shard)?;
    let locked = rows::locked(task.set, &shard.shard_key, task.by.generation);
    let lock =
        format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", probe::qualified(task.tables, shard).join(", "));
    let beside = known.referencing();
    let answers = session.run_for_each(&format!("BEGIN; {locked}; {beside}; {lock}; {look}"));
    match answers {
        Err(error) if error.is("42P01") || error.is("3F000") => {
            session.run("ROLLBACK")?;
            // A table that refers to them may have been renamed, which shows nothing about them.
            if !beside.is_empty() && session.undone(|session| session.run(&lock)).is_ok() {
                return Ok(None);
            }
            let answer = session.run(&locked)?;
            rows::read(session, &answer.rows)?;
            tell_of_nothing(task);
            Ok(None)
        }
        Err(error) => Err(error.into()),
        Ok(answers) => {
            let [progress, seen] = answers.as_slice() else { return Err(SplitError::Superseded) };
            let progress = rows::read(session, &progress.rows)?;
            Ok(Some((progress, probe::read(session, seen.scalar(), task.tables.len())?)))
        }
    }
}

fn begin_origin(
    task: &Task<'_>,
    reader: &mut Connection,
    progress: &ReferenceProgress,
) -> Result<(Moment, ReferenceLook)> {
    let shard = &task.set.origin.shard;
    let look = probe::statements(reader, task.set, task.tables, shard)?;
    let tables = probe::qualified(task.tables, shard).join(", ");
    let moment = moment(task.set.id, &task.place.shard.shard_key, progress);
    let answers = reader.run_for_each(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE {tables} IN ACCESS SHARE MODE; {look}; {moment}"
    ));
    let answers = answers.map_err(|error| {
        if error.is("42P01") {
            SplitError::failed(
                crate::error::SqlState::parse("42P01"),
                format!("shard \"{}\": {}", shard.shard_key, error.message),
                "Create the table again, or remove it from the keyspace with shard_table_drop().",
            )
        } else {
            error.into()
        }
    })?;
    let [seen, moment] = answers.as_slice() else {
        return Err(RemoteError::unreadable(reader.shard(), "its tables").into());
    };
    let look = probe::read(reader, seen.scalar(), task.tables.len())?;
    Ok((read_moment(reader, &moment.rows)?, look))
}

/// Returns the query that is run in S, and is not the first one in it.
fn moment(set: i64, copy: &str, progress: &ReferenceProgress) -> String {
    let before = progress.snapshot.as_deref().map_or("NULL".to_owned(), literal);
    let (s, p) = ("pg_current_snapshot()", format!("{before}::pg_snapshot"));
    format!(
        "SELECT {s}::text, {SERVER},
                coalesce(o.steps ->> {copy}, '0'), NOT {ahead},
                (o.consumed IS NULL OR {whole}) AND pg_snapshot_xmin({p}) >= o.complete_from,
                pg_snapshot_xmin({s}) >= o.complete_from,
                NOT o.is_full AND coalesce(pg_sequence_last_value('shardmaster_agent.{sequence}'::regclass), 1) = 1
           FROM shardmaster_agent.reference_origin o WHERE o.set_id = {set}",
        copy = literal(copy),
        ahead = covers(s, &p),
        whole = covers(&p, "o.consumed"),
        sequence = sequence(set),
    )
}

fn read_moment(reader: &Connection, answer: &[Vec<Option<String>>]) -> Result<Moment> {
    let unreadable = || RemoteError::unreadable(reader.shard(), "its snapshot");
    let Some([Some(snapshot), Some(server), Some(steps), ahead, whole, complete, open]) =
        answer.first().map(Vec::as_slice)
    else {
        return Err(probe::not_restored(reader));
    };
    let is = |cell: &Option<String>| cell.as_deref() == Some("t");
    Ok(Moment {
        snapshot: snapshot.clone(),
        server: server.clone(),
        steps: steps.parse().map_err(|_| unreadable())?,
        is_ahead: ahead.as_deref() != Some("f"),
        is_whole: is(whole),
        is_complete: is(complete),
        is_open: is(open),
    })
}

/// Reads both ends and creates what is missing; code of others is checked first.
fn look_through(
    task: &Task<'_>,
    reader: &mut Connection,
    control: &mut Connection,
    session: &mut Connection,
) -> Result<FitTables> {
    let Task { set, place, tables, .. } = task;
    let see = |session: &mut Connection, place: &ReferencePlace| -> Result<ReferenceLook> {
        let look = probe::statements(session, set, tables, &place.shard)?;
        let answers = session.run_for_each(&look)?;
        let text = answers.first().and_then(|rows| rows.scalar());
        Ok(probe::read(session, text, tables.len())?)
    };
    let (there, here) = (see(reader, &set.origin)?, see(session, place)?);
    conflict::require_followed(control, set, tables, &set.origin)?;
    conflict::require_followed(session, set, tables, place)?;
    let from = table::look(reader, tables, &set.origin, false)?;
    let to = table::look(session, tables, place, true)?;
    let mut pairs = Vec::new();
    for ((member, from), to) in tables.iter().zip(from).zip(to) {
        let position = pairs.len();
        if !there.tables[position].has(SetEnd::Origin) {
            install::capture(control, set, member, &from)?;
        }
        if !here.tables[position].has(SetEnd::Copy) {
            install::guard(session, set, member, &to.shape.name)?;
        }
        let shards = [set.origin.shard.shard_key.as_str(), place.shard.shard_key.as_str()];
        pairs.push(ReferenceTable::of(member, [(from, shards[0]), (to, shards[1])])?);
    }
    table::find_references(session, set, tables, place, &mut pairs)?;
    Ok(FitTables { there, here, pairs })
}

/// Whether the queues do not show what has changed.
fn why_all(progress: &ReferenceProgress, moment: &Moment) -> bool {
    progress.snapshot.is_none()
        || progress.server.as_ref() != Some(&moment.server)
        || progress.steps > moment.steps
        || moment.is_ahead
        || !moment.is_whole
}

fn carry_out(
    task: &Task<'_>,
    reader: &mut Connection,
    control: &mut Connection,
    session: &mut Connection,
    known: &FitTables,
    progress: ReferenceProgress,
    moment: Moment,
) -> Result<Stepped> {
    if !moment.is_open {
        return Err(SplitError::Retry("the queues of changes to be opened again: one was full".into()));
    }
    let all = why_all(&progress, &moment);
    let marks: BTreeMap<String, String> = known
        .pairs
        .iter()
        .zip(known.there.tables.iter().zip(&known.here.tables))
        .map(|(pair, (there, here))| (pair.ordinal.to_string(), mark(there, here)))
        .collect();
    let is_new = |pair: &ReferenceTable| {
        let ordinal = pair.ordinal.to_string();
        all || progress.tables.get(&ordinal) != marks.get(&ordinal)
    };
    let condition = queue::is_new(progress.snapshot.as_deref());
    let entries = count(task.set, reader, &known.pairs, &condition)?;
    let total: i64 = entries.iter().sum();
    if total == 0 && !known.pairs.iter().any(is_new) {
        reader.run("ROLLBACK")?;
        session.run("ROLLBACK")?;
        return Ok(Stepped { snapshot: progress.snapshot, entries: 0 });
    }
    if known.pairs.iter().any(is_new) && !moment.is_complete {
        return Err(SplitError::Retry(
            "transactions on the origin that began before its queue was opened again".into(),
        ));
    }
    for (pair, entries) in known.pairs.iter().zip(&entries) {
        let queue = queue_table(task.set.id, pair.ordinal);
        let rows = match (is_new(pair), *entries) {
            (true, _) => MergeRows::All,
            (false, 0) => continue,
            (false, _) => MergeRows::Changed { queue: &queue, condition: &condition },
        };
        pair.bring(reader, session, &rows)?;
    }
    for (pair, entries) in known.pairs.iter().zip(&entries) {
        if is_new(pair) || *entries > 0 {
            pair.require_no_dangling(session)?;
        }
    }
    reach(points::APPLIED)?;
    let steps = progress.steps.max(moment.steps).saturating_add(1);
    let snapshot = Some(moment.snapshot);
    let after =
        ReferenceProgress { steps, snapshot: snapshot.clone(), server: Some(moment.server), tables: marks };
    session.run(&rows::store(task.set, &task.place.shard.shard_key, &after))?;
    rows::announce(control, task.set, &task.place.shard.shard_key, task.by.generation, steps)?;
    reach(points::DURABLE)?;
    session.run("COMMIT")?;
    reach(points::COMMITTED)?;
    reader.run("COMMIT")?;
    Ok(Stepped { snapshot, entries: total })
}

/// Counts the entries of each queue for which a condition holds.
fn count(
    set: &ReferenceSet,
    reader: &mut Connection,
    pairs: &[ReferenceTable],
    condition: &str,
) -> Result<Vec<i64>> {
    let counts: Vec<String> = pairs
        .iter()
        .map(|pair| format!("({})", queue::count(&queue_table(set.id, pair.ordinal), condition)))
        .collect();
    let answer = reader.run(&format!("SELECT {}", counts.join(", ")))?;
    let cells = answer.rows.iter().flatten();
    let counts: Option<Vec<i64>> = cells.map(|cell| cell.as_deref()?.parse().ok()).collect();
    counts
        .filter(|counts| counts.len() == pairs.len())
        .ok_or_else(|| RemoteError::unreadable(reader.shard(), "its queues").into())
}
