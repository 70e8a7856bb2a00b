//! The tables `generation` and `session`: which worker may act on a side, and its sessions.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::state::master;
use crate::agent::state::side::{self, Installed, SideChange, Version};
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError};
use crate::server::retry::{self, Attempt, Backoff};
use std::time::{Duration, Instant};

/// A worker's right to act on both sides of a split, until another one takes a higher generation.
#[derive(Clone)]
pub struct Tenure {
    pub plan: Plan,
    pub generation: i64,
    /// The identity of the master.
    pub identity: String,
}

/// Opens a session on a side that belongs to this master.
pub fn open(plan: &Plan, identity: &str, side: Side, purpose: &str) -> Result<Connection> {
    let mut session = session::open_mover(plan, side, purpose)?;
    master::check(&mut session, identity)?;
    Ok(session)
}

impl Tenure {
    /// Opens a session on a side that belongs to this master. It has not taken the side over.
    pub fn open(&self, side: Side, purpose: &str) -> Result<Connection> {
        open(&self.plan, &self.identity, side, purpose)
    }

    /// Takes the side over with a session, and registers it for the next worker.
    pub fn take_over(&self, session: &mut Connection, side: Side) -> Result<()> {
        take_over(session, &self.plan, side, self.generation)?;
        register(session, &self.plan, side)
    }

    /// Opens a session and takes its side over.
    pub fn take(&self, side: Side, purpose: &str) -> Result<Connection> {
        let mut session = self.open(side, purpose)?;
        self.take_over(&mut session, side)?;
        Ok(session)
    }

    /// Opens a session and takes its side over. Returns None if the shard does not have the side.
    pub fn take_if_there(&self, side: Side, purpose: &str) -> Result<Option<Connection>> {
        let mut session = self.open(side, purpose)?;
        if side::installed(&mut session, &self.plan, side)? != Installed::Ours {
            return Ok(None);
        }
        self.take_over(&mut session, side)?;
        Ok(Some(session))
    }
}

/// Returns the error of `Installed::No` for a side that must exist.
pub fn not_installed(shard: &str, id: i64) -> SplitError {
    SplitError::NotInstalled(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("shard \"{shard}\" does not know split {id}: it was restored to an earlier time, or cleaned up"),
        )
        .hint(format!(
            "Before the cutover's decision, run SELECT shard_split_rollback({id}) and start again. After it, keep clients off the shard, restore it to a time after the cutover and resume. If the source was cleaned up on purpose, run SELECT shard_split_finish({id}, source_lost => true)."
        )),
    )
}

/// The greatest number of workers that a restored master may have forgotten. A number further ahead cannot be genuine,
/// and continuing from it would use up the remaining numbers.
const MOST_LOST: i64 = 1_000_000_000;

/// Takes a side over: the sessions of the earlier worker are ended and waited for, then the generation is raised. A
/// late commit of a dead worker's session would otherwise come between what is read afterwards and what is written.
fn take_over(connection: &mut Connection, plan: &Plan, side: Side, generation: i64) -> Result<()> {
    match side::installed(connection, plan, side)? {
        Installed::Ours => {}
        Installed::Foreign => return Err(side::foreign(connection.shard(), plan).into()),
        Installed::No => return Err(not_installed(connection.shard(), plan.id)),
    }
    end_previous(connection, plan, side)?;
    let id = plan.id.to_string();
    let key = [Some(id.as_str()), Some(side.as_str())];
    let raised = connection
        .query(
            "UPDATE shardmaster_agent.generation SET generation = $3
              WHERE split_id = $1 AND side = $2 AND generation < $3",
            &[key[0], key[1], Some(&generation.to_string())],
        )
        .map_err(|error| {
            if error.is_lock_timeout() {
                SplitError::Retry(format!(
                    "a transaction of the previous worker on shard \"{}\"",
                    error.shard
                ))
            } else {
                error.into()
            }
        })?;
    if raised.affected != 1 {
        let Some(known) = known_generation(connection, plan, side)? else {
            // Somebody has deleted the row, or the shard was restored to an earlier time: the next attempt finds out,
            // and not at once.
            return Err(SplitError::Retry(format!(
                "the row of split {} in shardmaster_agent.generation of shard \"{}\", which is missing there",
                plan.id,
                connection.shard()
            )));
        };
        if known > generation.saturating_add(MOST_LOST) {
            return Err(SplitError::failed(
                SqlState::NOT_IN_STATE,
                format!(
                    "shard \"{}\" records worker {known} of split {}, which no master has had",
                    connection.shard(),
                    plan.id
                ),
                "Somebody has written into the agent's tables there: find out who before anything else, then set shardmaster_agent.generation back to a number that the master knows.",
            ));
        }
        return Err(SplitError::Behind { shard: connection.shard().to_owned(), generation: known });
    }
    connection.query("DELETE FROM shardmaster_agent.session WHERE split_id = $1 AND side = $2", &key)?;
    Ok(())
}

/// Returns the newest generation that a shard knows of a side.
pub fn known_generation(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Option<i64>> {
    let known = connection.query(
        "SELECT generation FROM shardmaster_agent.generation WHERE split_id = $1 AND side = $2",
        &[Some(&plan.id.to_string()), Some(side.as_str())],
    )?;
    Ok(known.scalar().and_then(|g| g.parse().ok()))
}

/// Ends the sessions of the earlier worker and waits until they are gone.
pub fn end_previous(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    let id = plan.id.to_string();
    let key = [Some(id.as_str()), Some(side.as_str())];
    const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(20));
    let ended = retry::until(Instant::now() + Duration::from_secs(10), PAUSES, || {
        let left = connection.query(
            "SELECT count(pg_terminate_backend(a.pid)) FROM shardmaster_agent.session s
               JOIN pg_stat_activity a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start
              WHERE s.split_id = $1 AND s.side = $2 AND a.pid <> pg_backend_pid()",
            &key,
        )?;
        if left.scalar() == Some("0") {
            return Ok(Attempt::Done(()));
        }
        let shard = connection.shard();
        Ok::<_, SplitError>(Attempt::Waits(format!(
            "sessions of the previous worker on shard \"{shard}\", which have not ended"
        )))
    });
    ended?.map_err(SplitError::Retry)
}

/// Records a session, so that the next worker can end it.
pub fn register(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.session (split_id, side, backend_pid, backend_start)
         SELECT $1, $2, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()",
        &[Some(&plan.id.to_string()), Some(side.as_str())],
    )?;
    Ok(())
}

/// Begins a transaction in which a worker's generation cannot be overtaken: the next worker's update of the row waits
/// for its end.
pub fn begin_as(connection: &mut Connection, split: i64, side: Side, generation: i64) -> Result<()> {
    let outcome = connection.run(&begin_statements(split, side, generation));
    begun(connection, outcome).map(|_| ())
}

/// Returns the statements that begin it, for a message with others. If another worker has taken over, the second one
/// fails by a division by zero, so that nothing after it runs: a message of several statements has no other condition.
pub fn begin_statements(split: i64, side: Side, generation: i64) -> String {
    format!("BEGIN; {}", is_mine(split, side, generation))
}

/// Returns the statement that checks the generation in a transaction that has begun.
pub fn is_mine(split: i64, side: Side, generation: i64) -> String {
    format!(
        "SELECT 1 / count(*) FROM (SELECT FROM shardmaster_agent.generation
          WHERE split_id = {split} AND side = {} AND generation = {generation} FOR SHARE) mine",
        literal(side.as_str())
    )
}

/// Returns the outcome of such a message.
pub fn begun<T>(connection: &mut Connection, outcome: std::result::Result<T, RemoteError>) -> Result<T> {
    outcome.map_err(|error| {
        let _ = connection.run("ROLLBACK");
        if error.is(DIVISION_BY_ZERO) { SplitError::Superseded } else { error.into() }
    })
}

const DIVISION_BY_ZERO: &str = "22012";

/// Changes a side's state in a transaction of its own. Returns false if it was in another state.
pub fn change(
    connection: &mut Connection,
    split: i64,
    generation: i64,
    change: &SideChange,
    version: Version<'_>,
) -> Result<bool> {
    let begin = begin_statements(split, change.side, generation);
    let outcome = connection.run_for_each(&format!("{begin}; {}; COMMIT", change.statement(split, version)));
    let answers = begun(connection, outcome)?;
    Ok(answers.last().is_some_and(|changed| changed.rows.len() == 1))
}

/// Inserts the row of a side that begins, with a generation below that of the worker that is about to take it.
pub fn insert(connection: &mut Connection, split: i64, side: Side, generation: i64) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.generation (split_id, side, generation) VALUES ($1, $2, $3)
         ON CONFLICT DO NOTHING",
        &[Some(&split.to_string()), Some(side.as_str()), Some(&(generation - 1).to_string())],
    )?;
    Ok(())
}

/// Returns the statements that remove the records of a side's workers.
pub fn delete(split: i64, side: Side) -> String {
    let side = literal(side.as_str());
    format!(
        "DELETE FROM shardmaster_agent.session WHERE split_id = {split} AND side = {side};
         DELETE FROM shardmaster_agent.generation WHERE split_id = {split} AND side = {side}"
    )
}
