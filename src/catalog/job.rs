//! Rows of `shardmaster.job`: long work on the shards, and how far it is.

use crate::catalog::local;
use crate::error::{Failure, SqlState};
use crate::named_enum::named_enum;
use crate::server::sql::{self, Row};
use crate::server::wake;

named_enum! {
    pub enum JobKind {
        /// Fill a column from the table that a foreign key leads to.
        Derive = "derive",
        /// Remove such a column.
        DeriveDrop = "derive_drop",
        /// Give a table a primary key.
        Identify = "identify",
    }
}

named_enum! {
    pub enum JobState {
        Running = "running",
        /// An operator holds it back.
        Paused = "paused",
        /// It needs an operator.
        Failed = "failed",
        Done = "done",
    }
}

/// How far a job is: what it does on which shard, and its position in that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    /// `None` before the first shard and after the last.
    pub shard_key: Option<String>,
    pub step: String,
    pub position: String,
    /// How many blocks of a table the step has passed, and of how many.
    pub done: i64,
    pub total: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: i64,
    pub kind: JobKind,
    /// The table, as `derived_column` names it.
    pub object: String,
    pub keyspace: String,
    pub place: JobPlace,
}

const COLUMNS: &str = "id, kind, object, keyspace, shard_key, step, position, done, total";

fn from_row(row: &Row<'_>) -> Option<Job> {
    Some(Job {
        id: row.value(1),
        kind: JobKind::from_name(&row.value::<String>(2))?,
        object: row.value(3),
        keyspace: row.value(4),
        place: JobPlace {
            shard_key: row.get(5),
            step: row.value(6),
            position: row.value(7),
            done: row.value(8),
            total: row.get(9),
        },
    })
}

/// Whether the worker of jobs has something to do. A catalog of 0.1.0 has no jobs.
pub fn has_work() -> bool {
    local::has_table("job")
        && sql::exists("SELECT true FROM shardmaster.job WHERE state = 'running' LIMIT 1", &[])
}

/// A job's state, for who waits for its end.
pub struct JobProgress {
    pub state: JobState,
    /// Where it is, for people.
    pub place: String,
    /// What it failed with.
    pub failure: Option<Failure>,
}

pub fn read_state(id: i64) -> Option<JobProgress> {
    sql::read_one(
        "SELECT state, concat_ws(', ', format('%s of table %s', kind, object), 'on shard ' || shard_key, 'step ' || step,
                               CASE WHEN step = 'rows' AND total > 0 THEN round(least(100.0 * done / total, 100)) || ' %' END,
                               'waiting for ' || waiting_for),
                error_code, error_message, error_hint
           FROM shardmaster.job WHERE id = $1",
        &[id.into()],
        |row| {
            let message = row.get::<String>(4);
            let failure = message.map(|message| {
                let code = row.get::<String>(3).unwrap_or_default();
                let failure = Failure::new(SqlState::parse(&code), message);
                row.get::<String>(5).into_iter().fold(failure, Failure::hint)
            });
            Some(JobProgress { state: JobState::from_name(&row.value::<String>(1))?, place: row.value(2), failure })
        },
    )
    .flatten()
}

/// Returns the jobs that go on, the oldest first.
pub fn running() -> Vec<Job> {
    let query = format!("SELECT {COLUMNS} FROM shardmaster.job WHERE state = 'running' ORDER BY id");
    sql::read(&query, &[], |row| from_row(&row)).into_iter().flatten().collect()
}

/// Returns the job of a table that has not ended, and its state.
pub fn open_of(keyspace: &str, object: &str) -> Option<(i64, JobKind, JobState)> {
    if !local::has_table("job") {
        return None;
    }
    sql::read_one(
        "SELECT id, kind, state FROM shardmaster.job WHERE keyspace = $1 AND object = $2 AND state <> 'done' ORDER BY id DESC LIMIT 1",
        &[keyspace.into(), object.into()],
        |row| {
            Some((
                row.value(1),
                JobKind::from_name(&row.value::<String>(2))?,
                JobState::from_name(&row.value::<String>(3))?,
            ))
        },
    )
    .flatten()
}

/// Starts a job and returns its id.
pub fn insert(kind: JobKind, keyspace: &str, object: &str) -> i64 {
    wake::coordinator_on_commit();
    sql::write_one(
        "INSERT INTO shardmaster.job (kind, keyspace, object) VALUES ($1, $2, $3) RETURNING id",
        &[kind.as_str().into(), keyspace.into(), object.into()],
        |row| row.value(1),
    )
    .unwrap_or_default()
}

/// Starts the jobs of a keyspace's derived columns again, for a shard that has got the tables.
pub fn derive_again(keyspace: &str) {
    if !local::has_table("job") {
        return;
    }
    wake::coordinator_on_commit();
    sql::write(
        "INSERT INTO shardmaster.job (kind, keyspace, object)
         SELECT 'derive', d.keyspace, d.table_name FROM shardmaster.derived_column d
          WHERE d.keyspace = $1 AND NOT EXISTS (SELECT FROM shardmaster.job j
                                                 WHERE j.keyspace = d.keyspace AND j.object = d.table_name AND j.state <> 'done')
          ORDER BY d.id",
        &[keyspace.into()],
    );
}

/// Records how far a job is. Returns false if it is not to go on: it was paused, or its table is gone.
pub fn reached(id: i64, place: &JobPlace, waiting_for: Option<&str>) -> bool {
    sql::write(
        "UPDATE shardmaster.job
            SET shard_key = $2, step = $3, position = $4, done = $5, total = $6, waiting_for = $7, changed_at = clock_timestamp(),
                error_code = NULL, error_message = NULL, error_hint = NULL
          WHERE id = $1 AND state = 'running'",
        &[
            id.into(),
            place.shard_key.clone().into(),
            place.step.as_str().into(),
            place.position.as_str().into(),
            place.done.into(),
            place.total.into(),
            waiting_for.into(),
        ],
    ) == 1
}

/// Records what a job waits for. It is tried again.
pub fn waits(id: i64, why: &str) {
    sql::write(
        "UPDATE shardmaster.job SET waiting_for = $2, changed_at = clock_timestamp() WHERE id = $1 AND state = 'running'",
        &[id.into(), why.into()],
    );
}

pub fn failed(id: i64, failure: &Failure) {
    sql::write(
        "UPDATE shardmaster.job
            SET state = 'failed', error_code = $2, error_message = $3, error_hint = $4, waiting_for = NULL, changed_at = clock_timestamp()
          WHERE id = $1 AND state = 'running'",
        &[
            id.into(),
            failure.sqlstate.as_str().into(),
            failure.message.as_str().into(),
            failure.hint.clone().into(),
        ],
    );
}

/// Ends a job before its end: another one undoes it.
pub fn abandon(id: i64) {
    sql::write(
        "UPDATE shardmaster.job SET state = 'running' WHERE id = $1 AND state <> 'done'",
        &[id.into()],
    );
    done(id);
}

pub fn done(id: i64) {
    sql::write(
        "UPDATE shardmaster.job
            SET state = 'done', shard_key = NULL, step = 'end', position = '', waiting_for = NULL, ended_at = clock_timestamp(),
                changed_at = clock_timestamp()
          WHERE id = $1 AND state = 'running'",
        &[id.into()],
    );
}

/// Sets the state that an operator asks for. Returns false if there is no such job, or it has ended.
pub fn set(id: i64, state: JobState) -> bool {
    wake::coordinator_on_commit();
    sql::write(
        "UPDATE shardmaster.job
            SET state = $2, waiting_for = NULL, error_code = NULL, error_message = NULL, error_hint = NULL, changed_at = clock_timestamp()
          WHERE id = $1 AND state <> 'done'",
        &[id.into(), state.as_str().into()],
    ) == 1
}
