//! `shardmaster.execution` and `execution_shard`: a statement for all shards, and the progress of each shard.

use super::split;
use crate::catalog::declaration;
use crate::catalog::login::LoginRole;
use crate::error::{Failure, SqlState};
use crate::named_enum::named_enum;
use crate::remote::transaction::Transaction;
use crate::server::{database, sql};
use pgrx::pg_sys;
use pgrx::prelude::TimestampWithTimeZone;

named_enum! {
    /// The progress of a shard.
    pub enum ExecutionState {
        Waiting = "waiting",
        /// The statement may be running. In a transaction, also no COMMIT was sent.
        Running = "running",
        /// The statement was done in a prepared transaction, and nothing is decided.
        Prepared = "prepared",
        /// The statement was done, and a COMMIT may have been sent. In two phases, the commit was decided.
        Committing = "committing",
        Done = "done",
        Failed = "failed",
        /// Whether the statement was done is unknown.
        Unknown = "unknown",
        Abandoned = "abandoned",
    }
}
use ExecutionState::{Abandoned, Committing, Done, Failed, Prepared, Running, Unknown, Waiting};

/// The permitted changes: a state, and the states that may follow it.
const CHANGES: &[(ExecutionState, &[ExecutionState])] = &[
    (Waiting, &[Running, Failed, Unknown, Abandoned]),
    (Running, &[Prepared, Committing, Done, Failed, Unknown, Waiting, Abandoned]),
    (Prepared, &[Committing, Failed, Unknown, Waiting, Abandoned]),
    (Committing, &[Done, Failed, Unknown, Waiting, Abandoned]),
    (Failed, &[Waiting, Unknown, Abandoned]),
    (Unknown, &[Waiting, Abandoned]),
    (Done, &[]),
    (Abandoned, &[]),
];

/// SQL condition: a statement that may be running on a shard, or may have been done.
const HELD: &str = "state IN ('running', 'prepared', 'committing', 'unknown')";

impl ExecutionState {
    /// Whether something of a two-phase execution may be open on the shard, where it holds locks.
    pub fn is_open(self) -> bool {
        matches!(self, ExecutionState::Running | ExecutionState::Prepared | ExecutionState::Committing)
    }

    /// Returns the states from which this one may be reached.
    fn before(self) -> Vec<String> {
        let leads = |(from, to): &(ExecutionState, &[ExecutionState])| {
            to.contains(&self).then(|| from.as_str().to_owned())
        };
        CHANGES.iter().filter_map(leads).collect()
    }
}

pub struct NewExecution<'a> {
    pub keyspace: &'a str,
    pub statement: &'a str,
    pub wave: i32,
    pub in_transaction: bool,
    /// The role whose logins carry out an execution in two phases.
    pub two_phase: Option<pg_sys::Oid>,
    pub by_policies: bool,
    pub started_by: &'a str,
}

pub struct Execution {
    pub id: i64,
    pub keyspace: String,
    pub statement: String,
    pub wave: usize,
    pub in_transaction: bool,
    /// All shards carry it out, or none.
    pub two_phase: bool,
    /// It acts on the rows that the login's policies show.
    pub by_policies: bool,
    pub started_by: String,
    /// Another master has begun it, of which this one is a copy.
    pub is_others: bool,
    /// The master was restored or has failed over since its record was last known to be complete: its last writes may
    /// be lost. Whatever state it records for a shard, that shard may be further.
    pub may_be_behind: bool,
}

/// A session on a shard.
#[derive(Clone, Debug)]
pub struct ShardBackend {
    pub username: String,
    pub pid: i32,
    /// Seconds, as that server writes them.
    pub start: String,
}

/// One shard of an execution.
pub struct ExecutionPlace {
    pub shard: String,
    pub state: ExecutionState,
    pub backend: Option<ShardBackend>,
    pub transaction: Option<Transaction>,
    /// The name of its prepared transaction.
    pub gid: Option<String>,
    /// The server that the prepared transaction is or may be on.
    pub system_identifier: Option<String>,
}

/// An execution on a shard, as people see it.
pub struct ListedExecution {
    pub execution: i64,
    pub shard: String,
    pub state: String,
    pub statement: String,
    pub rows: Option<i64>,
    pub sqlstate: Option<String>,
    pub message: Option<String>,
    pub started_by: String,
    pub changed_at: TimestampWithTimeZone,
    pub gid: Option<String>,
}

pub fn insert(new: &NewExecution<'_>, shards: &[String]) -> i64 {
    let id: Option<i64> = sql::write_one(
        "INSERT INTO shardmaster.execution (keyspace, statement, wave, in_transaction, started_by, two_phase, login_role, master)
         VALUES ($1, $2, $3, $4, $5, $6::oid IS NOT NULL, $6::oid::regrole, $7) RETURNING id",
        &[
            new.keyspace.into(),
            new.statement.into(),
            new.wave.into(),
            new.in_transaction.into(),
            new.started_by.into(),
            new.two_phase.into(),
            split::identity().into(),
        ],
        |row| row.value(1),
    );
    let id = id.unwrap_or_default();
    // The catalog of 0.1.0 has no such column, and no caller asks for policies there.
    if new.by_policies {
        sql::write("UPDATE shardmaster.execution SET by_policies = true WHERE id = $1", &[id.into()]);
    }
    sql::write(
        "INSERT INTO shardmaster.execution_shard (execution_id, position, shard)
         SELECT $1, u.n::int, u.shard FROM pg_catalog.unnest($2::text[]) WITH ORDINALITY u (shard, n)",
        &[id.into(), shards.to_vec().into()],
    );
    id
}

pub fn find(id: i64) -> Result<Execution, Failure> {
    let found = sql::read_one_latest(
        &format!(
            "SELECT keyspace, statement, wave, in_transaction, started_by, two_phase, master <> $2, timeline <> {TIMELINE},
                    coalesce((pg_catalog.to_jsonb(e) ->> 'by_policies')::boolean, false)
               FROM shardmaster.execution e WHERE id = $1"
        ),
        &[id.into(), split::identity().into()],
        |row| Execution {
            id,
            keyspace: row.value(1),
            statement: row.value(2),
            wave: usize::try_from(row.value::<i32>(3)).unwrap_or(1),
            in_transaction: row.value(4),
            started_by: row.value(5),
            two_phase: row.value(6),
            is_others: row.value(7),
            may_be_behind: row.value(8),
            by_policies: row.value(9),
        },
    );
    found.ok_or_else(|| {
        Failure::new(SqlState::UNDEFINED_OBJECT, format!("execution {id} does not exist"))
            .hint("shard_executions() lists them.")
    })
}

/// SQL expression: the current timeline of this master.
const TIMELINE: &str =
    "pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)";

/// Marks what may have been done as unknown on all shards: this master's record is complete from now on.
pub fn is_whole(id: i64) {
    sql::write(
        &format!("UPDATE shardmaster.execution SET timeline = {TIMELINE} WHERE id = $1"),
        &[id.into()],
    );
}

/// Records that this master carries out the execution from now on.
pub fn take_over(id: i64) {
    sql::write(
        "UPDATE shardmaster.execution SET master = $2 WHERE id = $1",
        &[id.into(), split::identity().into()],
    );
}

/// Returns the role whose logins carry out a two-phase execution, or None if the role no longer exists.
pub fn login_role(id: i64) -> Option<LoginRole> {
    // In the catalog of 0.1.0 the column is a regrole, which has the same text.
    let query = "SELECT r.oid, r.rolname::text FROM shardmaster.execution e
                   JOIN pg_catalog.pg_roles r ON pg_catalog.quote_ident(r.rolname) = e.login_role::text
                  WHERE e.id = $1";
    sql::read_one_latest(query, &[id.into()], |row| LoginRole { id: row.value(1), name: row.value(2) })
}

/// Returns the shards of an execution in the order in which they run it.
pub fn places(id: i64) -> Vec<ExecutionPlace> {
    sql::read_latest(
        "SELECT shard, state, username, pid, backend_start, xid, system_identifier, timeline, flushed, gid
           FROM shardmaster.execution_shard WHERE execution_id = $1 ORDER BY position",
        &[id.into()],
        |row| ExecutionPlace {
            shard: row.value(1),
            state: ExecutionState::from_name(&row.value::<String>(2)).unwrap_or(ExecutionState::Unknown),
            backend: row.get(4).map(|pid| ShardBackend {
                username: row.get(3).unwrap_or_default(),
                pid,
                start: row.get(5).unwrap_or_default(),
            }),
            transaction: row.get(6).map(|xid| Transaction {
                xid,
                system_identifier: row.get(7).unwrap_or_default(),
                timeline: row.get(8).unwrap_or_default(),
                flushed: row.get(9).unwrap_or_default(),
            }),
            gid: row.get(10),
            system_identifier: row.get(7),
        },
    )
}

/// Changes the state of a shard. It is an error if the shard is in a state that does not lead to the new one.
fn change(
    id: i64,
    shard: &str,
    to: ExecutionState,
    set: &str,
    more: Vec<Option<String>>,
) -> Result<(), Failure> {
    let changed = sql::write(
        &format!(
            "UPDATE shardmaster.execution_shard
                SET state = $3, changed_at = pg_catalog.clock_timestamp(), {set}
              WHERE execution_id = $1 AND shard = $2 AND state = ANY ($4) AND $5::text[] IS NOT NULL"
        ),
        &[id.into(), shard.into(), to.as_str().into(), to.before().into(), more.into()],
    );
    if changed == 1 {
        return Ok(());
    }
    let text =
        format!("execution {id} is no longer in a state in which shard \"{shard}\" could be {}", to.as_str());
    Err(Failure::new(SqlState::NOT_IN_STATE, text).hint("Somebody has changed it meanwhile."))
}

const NOTHING: &str =
    "username = NULL, pid = NULL, backend_start = NULL, xid = NULL, system_identifier = NULL,
    timeline = NULL, flushed = NULL, gid = NULL, affected = NULL, error_code = NULL, error_message = NULL";

pub fn waits(id: i64, shard: &str) -> Result<(), Failure> {
    change(id, shard, ExecutionState::Waiting, NOTHING, vec![])
}

pub fn runs(id: i64, shard: &str, backend: &ShardBackend) -> Result<(), Failure> {
    let more =
        vec![Some(backend.username.clone()), Some(backend.pid.to_string()), Some(backend.start.clone())];
    let set =
        "username = $5[1], pid = $5[2]::int, backend_start = $5[3], error_code = NULL, error_message = NULL";
    change(id, shard, ExecutionState::Running, set, more)
}

/// Records the name of a prepared transaction before the shard can have it. No other attempt and no other master uses
/// that name.
pub fn will_prepare(id: i64, shard: &str, system_identifier: &str) -> Option<String> {
    sql::write_one(
        "UPDATE shardmaster.execution_shard
            SET system_identifier = $3, gid = pg_catalog.format('shardmaster_%s_%s_%s', execution_id, position,
                                        pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''))
          WHERE execution_id = $1 AND shard = $2 RETURNING gid",
        &[id.into(), shard.into(), system_identifier.into()],
        |row| row.value(1),
    )
}

pub fn is_prepared(id: i64, shard: &str, transaction: &Transaction, rows: u64) -> Result<(), Failure> {
    is_there(id, shard, ExecutionState::Prepared, transaction, rows)
}

/// Records the decision that a prepared transaction commits.
pub fn decides(id: i64, shard: &str) -> Result<(), Failure> {
    change(id, shard, ExecutionState::Committing, "error_code = NULL, error_message = NULL", vec![])
}

pub fn commits(id: i64, shard: &str, transaction: &Transaction, rows: u64) -> Result<(), Failure> {
    is_there(id, shard, ExecutionState::Committing, transaction, rows)
}

fn is_there(
    id: i64,
    shard: &str,
    to: ExecutionState,
    transaction: &Transaction,
    rows: u64,
) -> Result<(), Failure> {
    let Transaction { xid, system_identifier, timeline, flushed } = transaction.clone();
    let more = [xid, system_identifier, timeline, flushed, rows.to_string()].map(Some).to_vec();
    let set =
        "xid = $5[1], system_identifier = $5[2], timeline = $5[3], flushed = $5[4], affected = $5[5]::bigint";
    change(id, shard, to, set, more)
}

/// Records that a shard is done. If `rows` is None, the number of rows that was known before stays.
pub fn is_done(id: i64, shard: &str, rows: Option<u64>) -> Result<(), Failure> {
    let set = "affected = coalesce($5[1]::bigint, affected), error_code = NULL, error_message = NULL";
    change(id, shard, ExecutionState::Done, set, vec![rows.map(|rows| rows.to_string())])?;
    is_over(id);
    Ok(())
}

/// Records that a shard has ended in `Failed` or `Unknown`.
pub fn ends_badly(id: i64, shard: &str, to: ExecutionState, why: &Failure) -> Result<(), Failure> {
    let why = why.cleaned();
    let more = vec![Some(why.sqlstate.as_str().to_owned()), Some(why.message)];
    change(id, shard, to, "affected = NULL, error_code = $5[1], error_message = $5[2]", more)
}

/// Records why a shard does not leave its state.
pub fn is_held_up(id: i64, shard: &str, why: &Failure) {
    let why = why.cleaned();
    sql::write(
        "UPDATE shardmaster.execution_shard SET error_code = $3, error_message = $4
          WHERE execution_id = $1 AND shard = $2 AND (error_code, error_message) IS DISTINCT FROM ($3, $4)",
        &[id.into(), shard.into(), why.sqlstate.as_str().into(), why.message.into()],
    );
}

pub fn abandon(id: i64) {
    sql::write(
        "UPDATE shardmaster.execution_shard SET state = 'abandoned', changed_at = pg_catalog.clock_timestamp()
          WHERE execution_id = $1 AND state = ANY ($2)",
        &[id.into(), ExecutionState::Abandoned.before().into()],
    );
    is_over(id);
}

pub fn list(id: Option<i64>) -> Vec<ListedExecution> {
    sql::read(
        "SELECT e.id, s.shard, s.state, e.statement, s.affected, s.error_code, s.error_message, e.started_by, s.changed_at, s.gid
           FROM shardmaster.execution e JOIN shardmaster.execution_shard s ON s.execution_id = e.id
          WHERE $1 IS NULL OR e.id = $1
          ORDER BY e.id, s.position",
        &[id.into()],
        |row| ListedExecution {
            execution: row.value(1),
            shard: row.value(2),
            state: row.value(3),
            statement: row.value(4),
            rows: row.get(5),
            sqlstate: row.get(6),
            message: row.get(7),
            started_by: row.value(8),
            changed_at: row.value(9),
            gid: row.get(10),
        },
    )
}

/// Returns an execution that may be running on one of the shards, or whose outcome is unknown, and that shard.
pub fn of_shards(shards: &[String]) -> Option<(i64, String)> {
    let query = format!(
        "SELECT execution_id, shard FROM shardmaster.execution_shard
          WHERE shard = ANY ($1) AND {HELD} ORDER BY execution_id, position LIMIT 1"
    );
    sql::read_one_latest(&query, &[shards.to_vec().into()], |row| (row.value(1), row.value(2)))
}

/// Returns the two-phase executions of which something may be open on a shard and which no session has locked in this
/// space. The coordinator calls this repeatedly: it reads only what is open, however many executions have failed or
/// were aborted.
pub fn open_without(lock_space: u16) -> Vec<i64> {
    sql::read_again(
        &format!(
            "SELECT e.id FROM (SELECT DISTINCT execution_id FROM shardmaster.execution_shard
                                WHERE state IN ('running', 'prepared', 'committing')) s
               JOIN shardmaster.execution e ON e.id = s.execution_id
              WHERE e.two_phase AND e.master = $3 AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_locks l WHERE {HOLDS} = e.id)
              ORDER BY e.id"
        ),
        &[i32::from(lock_space).into(), database::id().into(), split::identity().into()],
        |row| row.value(1),
    )
}

/// SQL expression over a row `l` of `pg_locks`: the number that it locks, if it is an advisory lock of space $1 in
/// database $2.
const HOLDS: &str = "CASE WHEN l.locktype = 'advisory' AND l.objsubid = $1 AND l.granted AND l.database = $2
                          THEN (l.classid::bigint << 32) | l.objid::bigint END";

/// Returns the process id of the session that has locked the execution in this space.
pub fn holder(id: i64, lock_space: u16) -> Option<i32> {
    sql::read_one_latest(
        &format!("SELECT l.pid FROM pg_catalog.pg_locks l WHERE {HOLDS} = $3"),
        &[i32::from(lock_space).into(), database::id().into(), id.into()],
        |row| row.get(1),
    )
    .flatten()
}

/// Returns the finished two-phase executions whose prepared transaction a shard may have again, after a failover that
/// lost its end. They are checked ever less often, for a day.
pub fn to_look_at() -> Vec<i64> {
    sql::read_again(
        "SELECT e.id FROM shardmaster.execution e WHERE e.look_at <= pg_catalog.clock_timestamp() AND e.master = $1 ORDER BY e.id",
        &[split::identity().into()],
        |row| row.value(1),
    )
}

/// Schedules the first check of an execution of which no shard has anything left to do.
fn is_over(id: i64) {
    sql::write(
        "UPDATE shardmaster.execution e SET look_at = pg_catalog.clock_timestamp() + interval '5 s'
          WHERE e.id = $1 AND e.two_phase AND e.look_at IS NULL
            AND EXISTS (SELECT 1 FROM shardmaster.execution_shard s WHERE s.execution_id = e.id AND s.state = 'done')
            AND NOT EXISTS (SELECT 1 FROM shardmaster.execution_shard s WHERE s.execution_id = e.id AND s.state NOT IN ('done', 'abandoned'))",
        &[id.into()],
    );
}

/// Records that the shards were asked, or cannot be asked, and schedules the next check.
pub fn was_looked_at(id: i64) {
    sql::write(
        "UPDATE shardmaster.execution e
            SET look_at = CASE WHEN d.age < interval '1 day' THEN d.at + 2 * d.age + interval '5 s' END
           FROM (SELECT max(s.changed_at), pg_catalog.clock_timestamp() - max(s.changed_at)
                   FROM shardmaster.execution_shard s WHERE s.execution_id = $1) d (at, age)
          WHERE e.id = $1",
        &[id.into()],
    );
}

/// Returns a two-phase execution of which something may be open on any shard.
pub fn open_one() -> Option<i64> {
    open_where(None)
}

/// Returns a two-phase execution of which something may be open on this shard.
pub fn open_on(shard: &str) -> Option<i64> {
    open_where(Some(shard))
}

fn open_where(shard: Option<&str>) -> Option<i64> {
    sql::read_one_latest(
        "SELECT e.id FROM shardmaster.execution e JOIN shardmaster.execution_shard s ON s.execution_id = e.id
          WHERE e.two_phase AND ($1 IS NULL OR s.shard = $1) AND s.state IN ('running', 'prepared', 'committing') ORDER BY e.id LIMIT 1",
        &[shard.into()],
        |row| row.value(1))
}

/// Whether a role has the rights of the role that started the execution.
pub fn may_resume(role: pg_sys::Oid, started_by: &str) -> bool {
    let query = format!(
        "SELECT true FROM pg_catalog.pg_roles r WHERE {} AND pg_catalog.pg_has_role($1, r.oid, 'USAGE')",
        declaration::is("$2")
    );
    sql::exists(&query, &[role.into(), started_by.into()])
}
