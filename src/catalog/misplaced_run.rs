//! `shardmaster.misplaced_run` and the tables that belong to it: rows on the wrong shard that are moved or deleted,
//! and the keys that are held meanwhile.

use super::execution::ShardBackend;
use crate::error::{Failure, SqlState};
use crate::named_enum::named_enum;
use crate::server::sql;
use pgrx::prelude::TimestampWithTimeZone;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Move,
    Delete(Deletes),
}

named_enum! {
    /// Which rows of the keys are deleted.
    pub enum Deletes {
        /// All of them, if the right shard has a row with the primary key and shard-by value of each.
        OnBoth = "on_both",
        /// Only those whose primary key the right shard has with other content.
        Conflicting = "conflicting",
        /// All of them, whatever other shards have.
        All = "all",
    }
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Move => "move",
            Action::Delete(_) => "delete",
        }
    }

    /// Whether both shards are asked for the rows.
    pub fn compares(self) -> bool {
        match self {
            Action::Move | Action::Delete(Deletes::OnBoth | Deletes::Conflicting) => true,
            Action::Delete(Deletes::All) => false,
        }
    }
}

named_enum! {
    /// How a run ends. An ended run does not begin again.
    pub enum RunEnd {
        Done = "done",
        Failed = "failed",
        /// The session of the run was gone, and another one has taken its place.
        Interrupted = "interrupted",
        Abandoned = "abandoned",
    }
}

/// A key, in its canonical form.
#[derive(Clone, Debug)]
pub struct RunKey {
    pub key: String,
    /// `None` if the key is in no range.
    pub entry: Option<String>,
    pub routed_to: Option<String>,
}

/// One table of a run, as people see it.
pub struct ListedRun {
    pub run: i64,
    pub action: String,
    pub keyspace: String,
    pub shard: String,
    pub keys: i64,
    pub state: String,
    pub table: Option<String>,
    pub moved: Option<i64>,
    pub deleted: Option<i64>,
    pub sqlstate: Option<String>,
    pub message: Option<String>,
    pub started_by: String,
    pub started_at: TimestampWithTimeZone,
    pub changed_at: TimestampWithTimeZone,
}

/// Inserts a run, under the keyspace's lock. The run holds the keys from the commit on.
pub fn insert(action: Action, keyspace: &str, shard: &str, keys: &[RunKey], started_by: &str) -> i64 {
    let id: Option<i64> = sql::write_one(
        "INSERT INTO shardmaster.misplaced_run (action, keyspace, shard, started_by) VALUES ($1, $2, $3, $4) RETURNING id",
        &[action.as_str().into(), keyspace.into(), shard.into(), started_by.into()],
        |row| row.value(1),
    );
    let id = id.unwrap_or_default();
    let names: Vec<String> = keys.iter().map(|key| key.key.clone()).collect();
    let entries: Vec<Option<String>> = keys.iter().map(|key| key.entry.clone()).collect();
    let routes: Vec<Option<String>> = keys.iter().map(|key| key.routed_to.clone()).collect();
    sql::write(
        "INSERT INTO shardmaster.misplaced_key (run_id, key, entry, routed_to)
         SELECT $1, k.key, k.entry, k.routed_to FROM ROWS FROM (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]),
                pg_catalog.unnest($4::text[])) AS k (key, entry, routed_to)",
        &[id.into(), names.into(), entries.into(), routes.into()],
    );
    id
}

/// Returns the runs that hold one of the entries, or, with `or_all`, the whole keyspace.
pub fn of_entries(keyspace: &str, entries: &[String], or_all: bool) -> Vec<(i64, String)> {
    // This avoids sending millions of keys where no run could hold one.
    if of_keyspace(keyspace).is_none() {
        return Vec::new();
    }
    sql::read(
        "SELECT r.id, min(k.key) FROM shardmaster.misplaced_run r JOIN shardmaster.misplaced_key k ON k.run_id = r.id
          WHERE r.keyspace = $1 AND r.state = 'running' AND ($3 AND k.entry IS NULL OR k.entry = ANY ($2))
          GROUP BY r.id ORDER BY r.id",
        &[keyspace.into(), entries.to_vec().into(), or_all.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// Returns all entries that are held. A None among them means that the whole keyspace is held.
pub fn held_entries(keyspace: &str) -> Vec<Option<String>> {
    sql::read(
        "SELECT k.entry FROM shardmaster.misplaced_run r JOIN shardmaster.misplaced_key k ON k.run_id = r.id
          WHERE r.keyspace = $1 AND r.state = 'running'",
        &[keyspace.into()],
        |row| row.get(1),
    )
}

pub fn of_keyspace(keyspace: &str) -> Option<i64> {
    sql::read_one(
        "SELECT id FROM shardmaster.misplaced_run WHERE keyspace = $1 AND state = 'running' ORDER BY id LIMIT 1",
        &[keyspace.into()],
        |row| row.value(1),
    )
}

/// Returns a run that takes rows from the shard or brings rows there, as committed by now.
pub fn of_shard(shard: &str) -> Option<i64> {
    sql::read_one_latest(
        "SELECT r.id FROM shardmaster.misplaced_run r
          WHERE r.state = 'running'
            AND (r.shard = $1 OR EXISTS (SELECT FROM shardmaster.misplaced_key k WHERE k.run_id = r.id AND k.routed_to = $1))
          ORDER BY r.id LIMIT 1",
        &[shard.into()],
        |row| row.value(1))
}

/// Returns other runs that hold entries of this one: their sessions are gone.
pub fn before(id: i64) -> Vec<i64> {
    sql::read_column(
        "SELECT o.id FROM shardmaster.misplaced_run r
           JOIN shardmaster.misplaced_run o ON o.keyspace = r.keyspace AND o.state = 'running' AND o.id <> r.id
          WHERE r.id = $1
            AND (EXISTS (SELECT FROM shardmaster.misplaced_key n WHERE n.run_id IN (r.id, o.id) AND n.entry IS NULL)
                 OR EXISTS (SELECT FROM shardmaster.misplaced_key k JOIN shardmaster.misplaced_key h ON h.entry = k.entry
                             WHERE k.run_id = r.id AND h.run_id = o.id))
          ORDER BY o.id",
        &[id.into()])
}

pub fn is_running(id: i64) -> Result<bool, Failure> {
    let found = sql::read_one_latest(
        "SELECT state = 'running' FROM shardmaster.misplaced_run WHERE id = $1",
        &[id.into()],
        |row| row.value(1),
    );
    found.ok_or_else(|| {
        Failure::new(SqlState::UNDEFINED_OBJECT, format!("run {id} of misplaced rows does not exist"))
            .hint("shard_misplaced_runs() lists them.")
    })
}

pub fn works_by(id: i64, shard: &str, backend: &ShardBackend) {
    sql::write(
        "INSERT INTO shardmaster.misplaced_session (run_id, shard, username, pid, backend_start) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (run_id, shard) DO UPDATE SET username = excluded.username, pid = excluded.pid, backend_start = excluded.backend_start",
        &[
            id.into(),
            shard.into(),
            backend.username.as_str().into(),
            backend.pid.into(),
            backend.start.as_str().into(),
        ],
    );
}

/// Returns sessions that may be left, by shard.
pub fn sessions(id: i64) -> Vec<(String, ShardBackend)> {
    sql::read(
        "SELECT shard, username, pid, backend_start FROM shardmaster.misplaced_session WHERE run_id = $1 ORDER BY shard",
        &[id.into()],
        |row| (row.value(1), ShardBackend { username: row.value(2), pid: row.value(3), start: row.value(4) }),
    )
}

pub fn count(id: i64, table: &str, moved: u64, deleted: u64) {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sql::write(
        "INSERT INTO shardmaster.misplaced_table AS t (run_id, table_name, moved, deleted) VALUES ($1, $2, $3, $4)
         ON CONFLICT (run_id, table_name) DO UPDATE SET moved = t.moved + excluded.moved, deleted = t.deleted + excluded.deleted",
        &[id.into(), table.into(), number(moved).into(), number(deleted).into()],
    );
}

/// Ends a run, so that its keys are free again. Returns false if it has ended before.
pub fn ends(id: i64, end: RunEnd, why: Option<&Failure>) -> bool {
    let why = why.map(Failure::cleaned);
    sql::write(
        "UPDATE shardmaster.misplaced_run
            SET state = $2, changed_at = pg_catalog.clock_timestamp(), error_code = $3, error_message = $4
          WHERE id = $1 AND state = 'running'",
        &[
            id.into(),
            end.as_str().into(),
            why.as_ref().map(|why| why.sqlstate.as_str().to_owned()).into(),
            why.map(|why| why.message).into(),
        ],
    ) == 1
}

pub fn list(id: Option<i64>) -> Vec<ListedRun> {
    sql::read(
        "SELECT r.id, r.action, r.keyspace, r.shard, (SELECT count(*) FROM shardmaster.misplaced_key k WHERE k.run_id = r.id),
                r.state, t.table_name, t.moved, t.deleted, r.error_code, r.error_message, r.started_by, r.started_at, r.changed_at
           FROM shardmaster.misplaced_run r LEFT JOIN shardmaster.misplaced_table t ON t.run_id = r.id
          WHERE $1 IS NULL OR r.id = $1
          ORDER BY r.id, t.table_name COLLATE \"C\"",
        &[id.into()],
        |row| ListedRun {
            run: row.value(1),
            action: row.value(2),
            keyspace: row.value(3),
            shard: row.value(4),
            keys: row.value(5),
            state: row.value(6),
            table: row.get(7),
            moved: row.get(8),
            deleted: row.get(9),
            sqlstate: row.get(10),
            message: row.get(11),
            started_by: row.value(12),
            started_at: row.value(13),
            changed_at: row.value(14),
        },
    )
}
