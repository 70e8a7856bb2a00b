//! What a cutover has to know of both sides once its last window was copied, while writers wait: both are asked while
//! the target commits it.

use super::source;
use crate::agent::error::{Result, SplitError};
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError, number};
use crate::split::aborted;
use crate::split::copy::commit::{CommitAnswers, CommitQuestions};
use crate::split::cutover::old_guards::{self, OldGuards};
use crate::split::engine::sessions::EngineSessions;
use crate::split::sequences::{self, Ahead};
use crate::split::table::SplitTable;
use std::time::Instant;

/// The queries that are sent behind the fence together with others.
pub struct FenceQuestions {
    pub sequences: sequences::RaisedSequences,
    pub guards: old_guards::GuardQuestions,
}

/// The answers.
pub struct FenceAnswers {
    /// The answers about the sequences.
    pub source: Vec<Rows>,
    pub target: Vec<Rows>,
    /// `None` if the guards must be read separately.
    pub guards: Option<OldGuards>,
    /// The time from which both answers may have been valid.
    pub heard: Instant,
}

/// Prepares these queries, while no writer waits yet, and raises the sequences that they ask for.
pub fn prepare(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<FenceQuestions> {
    let raised_by = Instant::now() + guc::cutover_timeout();
    let sequences = sequences::raise(plan, sessions, tables, Ahead::Plenty, raised_by)
        .map_err(aborted::deadline_passed)?;
    source::prepare_unseen(plan.id, &mut sessions.control, tables)?;
    let guards = old_guards::GuardQuestions::prepare(&mut sessions.target)?;
    Ok(FenceQuestions { sequences, guards })
}

/// Returns the queries that are sent with the commit, so that writers do not wait for them separately: to the source
/// for changes that must not have been made since S_f, to the target for what would refuse the returning keys, to both
/// for the positions of the sequences.
pub fn questions(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    asked: &FenceQuestions,
    snapshot: &str,
) -> Result<CommitQuestions> {
    let [of_source, of_target] = asked.sequences.questions(&mut sessions.control, &mut sessions.target)?;
    let (unseen, heir) = (source::unseen(snapshot), heir_query(tables));
    Ok(CommitQuestions {
        source: format!("{unseen}; {heir}; {of_source}"),
        target: format!("{of_target}; {}", asked.guards.questions(plan)),
    })
}

pub fn read(
    plan: &Plan,
    sessions: &EngineSessions,
    asked: &FenceQuestions,
    answers: CommitAnswers,
) -> Result<FenceAnswers> {
    let CommitAnswers { mut source, mut target, heard } = answers;
    let of_sequences = asked.sequences.answers();
    let last = |rows: &mut Vec<Rows>, count: usize, of: &Connection| match rows.len().checked_sub(count) {
        Some(before) => Ok(rows.split_off(before)),
        None => Err(RemoteError::unreadable(of.shard(), "what it was asked behind the fence")),
    };
    let of_source = last(&mut source, of_sequences, &sessions.control)?;
    let behind = last(&mut source, 2, &sessions.control)?;
    let of = |number: usize| behind.get(number).and_then(Rows::scalar);
    let left = number::count(sessions.control.shard(), source::UNSEEN, of(0))?;
    require_queue_is_empty(plan.id, left)?;
    if let Some(heir) = of(1) {
        return Err(has_heir(plan, heir));
    }
    let of_guards = last(&mut target, old_guards::GuardQuestions::ANSWERS, &sessions.target)?;
    let guards = asked.guards.read(plan, &of_guards);
    let of_target = last(&mut target, of_sequences, &sessions.target)?;
    Ok(FenceAnswers { source: of_source, target: of_target, guards, heard })
}

/// Handles a sequence that was asked by a name that no longer exists: the cutover is retried and reads the names anew.
/// Anything else that is missing would be missing then, too.
pub fn renamed(error: SplitError, asked: &FenceQuestions) -> SplitError {
    match error {
        SplitError::Remote(error)
            if error.is(sequences::IS_OTHER)
                || error.is("42P01") && asked.sequences.are_named_in(&error.message) =>
        {
            SplitError::Retry("the sequences, which have just changed".to_owned())
        }
        other => other,
    }
}

/// Checks that the queue has nothing that S_f has not seen: behind the fence no session can have queued such a change.
fn require_queue_is_empty(split: i64, left: i64) -> Result<()> {
    if left == 0 {
        return Ok(());
    }
    Err(SplitError::Failed(
        Failure::new(
            SqlState::INTERNAL,
            format!("split {split}: {left} changes were queued behind the fence"),
        )
        .hint("The cutover was undone and nothing is lost. Please report this."),
    ))
}

/// Returns a query for a table that may have been made to inherit from a moving one since S_f: a lock against it would
/// wait for each vacuum. Finish finds what is added after this check.
fn heir_query(tables: &[SplitTable]) -> String {
    let tables = tables.iter().filter(|table| !table.source.is_partitioned());
    let oids: Vec<&str> = tables.filter_map(|table| table.source.oid.as_deref()).collect();
    format!(
        "SELECT format('%s inherits from %s', inhrelid::regclass, inhparent::regclass)
           FROM pg_inherits WHERE inhparent = ANY ('{{{}}}'::oid[]) LIMIT 1",
        oids.join(",")
    )
}

fn has_heir(plan: &Plan, heir: &str) -> SplitError {
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("{heir} on shard \"{}\": its rows would stay there", plan.source.shard_key),
        "Use partitions, or move the rows into the table. Then call shard_split_cutover again.",
    )
}
