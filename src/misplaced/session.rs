//! A session of the caller's login on one shard, for transactions that survive a crash.

use super::error;
use crate::agent::credential;
use crate::catalog::execution::ShardBackend;
use crate::catalog::shard::Shard;
use crate::error::Failure;
use crate::query::login::LoginWay;
use crate::query::opening::{self, Manners};
use crate::remote::quote::literal;
use crate::remote::template::{fill, texts};
use crate::remote::transaction::status;
use crate::remote::{Connection, RemoteError};
use crate::server::wait;
use std::time::{Duration, Instant};

/// Statements that begin it. Names are resolved in the server's own schema, except in statements that fire triggers. A
/// setting that keeps triggers and foreign keys from rows is a superuser's; and a lost shard is noticed.
const SETTLE_IN: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 14000; SET jit = off; SET row_security = off; SET xmloption = content; SET lc_monetary = 'C'; SET quote_all_identifiers = off;
    SELECT pg_catalog.concat(pg_catalog.substr(pg_catalog.current_setting('search_path'), 10), ', pg_temp'), a.pid::pg_catalog.text,
           EXTRACT(epoch FROM a.backend_start)::pg_catalog.text, pg_catalog.current_setting('session_replication_role'),
           pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
      FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";

/// How often a lock that blocks writers is requested, and how long they are admitted in between.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// What a transaction sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// What is committed by each statement.
    Latest,
    /// What was committed when it began. The server itself refuses to delete or change what it does not see.
    OneMoment,
}

impl Sees {
    fn level(self) -> &'static str {
        match self {
            Sees::Latest => "READ COMMITTED",
            Sees::OneMoment => "REPEATABLE READ",
        }
    }
}

pub struct MoveSession {
    pub connection: Connection,
    pub shard: Shard,
    pub backend: ShardBackend,
    /// The search_path of an application's session.
    path: String,
}

impl MoveSession {
    pub fn open(way: LoginWay, schemas: &[String], timeout: Duration) -> Result<MoveSession, Failure> {
        let (entrance, params) = way;
        let shard = &entrance.shard;
        let concealing = |error: RemoteError, params| credential::refused(shard, error.concealing(params));
        let params = params?;
        let mut connection = Connection::open(&shard.shard_key, &params, timeout)
            .map_err(|error| concealing(error, &params))?;
        connection.will_run_what_others_write();
        connection.set_deadline(Some(Instant::now() + timeout));
        let own = std::iter::once(shard.namespace.clone());
        let schemas: Vec<String> = own.chain(schemas.iter().cloned()).collect();
        let version = connection.server_version();
        let answer =
            connection.run(&opening::message(&entrance, &schemas, &Manners::of_caller(), version))?;
        opening::require(&entrance, &answer)?;
        let found = connection.run(SETTLE_IN)?;
        let cells: Vec<&str> = found.rows.iter().flatten().flatten().map(String::as_str).collect();
        let [path, pid, start, role, _] = cells.as_slice() else {
            return Err(RemoteError::unreadable(&shard.shard_key, "its identity").into());
        };
        if *role != "origin" {
            return Err(error::other_replication_role(&shard.shard_key));
        }
        let pid = pid.parse().map_err(|error| RemoteError::unreadable(&shard.shard_key, error))?;
        let (username, start, path) = (entrance.username.clone(), (*start).to_owned(), (*path).to_owned());
        Ok(MoveSession {
            connection,
            shard: entrance.shard,
            backend: ShardBackend { username, pid, start },
            path,
        })
    }

    /// Limits the time of all its answers from now on.
    pub fn patient_for(&mut self, timeout: Duration) {
        self.connection.set_deadline(Instant::now().checked_add(timeout));
    }

    /// Begins a transaction in which these tables stay as they are, and reads what they are. A session that waits for
    /// a lock blocks others; if nothing comes from the master any more the transaction ends automatically. `alone`: no
    /// other session writes to these meanwhile; the transaction sees what has been written before.
    pub fn begin(
        &mut self,
        tables: &[String],
        sees: Sees,
        alone: &[String],
        timeout: Duration,
    ) -> Result<String, Failure> {
        let idle = (timeout + Duration::from_secs(60)).as_millis().min(i32::MAX as u128);
        let lock = format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", tables.join(", "));
        let seen = seen(tables);
        let begin = format!(
            "BEGIN ISOLATION LEVEL {} READ WRITE; SET LOCAL idle_in_transaction_session_timeout = {idle}",
            sees.level()
        );
        let begin = match alone {
            [] => format!("{begin};"),
            _ => {
                self.begin_alone(&begin, alone)?;
                String::new()
            }
        };
        let answer =
            self.connection.run(&format!("{begin} SET LOCAL lock_timeout = '1s'; {lock}; {seen}"))?;
        let text =
            answer.scalar().ok_or_else(|| RemoteError::unreadable(self.connection.shard(), "its tables"))?;
        Ok(text.to_owned())
    }

    /// Begins it with locks that block writers. An autovacuum gives way to a session that has waited for
    /// `deadlock_timeout`. Writers are admitted between two attempts.
    fn begin_alone(&mut self, begin: &str, tables: &[String]) -> Result<(), Failure> {
        let lock = format!(
            "{begin}; SET LOCAL lock_timeout = '2s'; LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE",
            tables.join(", ")
        );
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.connection.run(&lock) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_lock_timeout() && attempts < ATTEMPTS => {
                    self.roll_back()?;
                    wait::sleep(PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the statement after which names are those of an application's session.
    pub fn as_application(&self) -> String {
        format!("SELECT pg_catalog.set_config('search_path', {}, true)", literal(&self.path))
    }

    /// Commits. It returns once what has happened, and all that was seen of others, survives a crash there.
    pub fn commit(&mut self) -> Result<(), Failure> {
        // A transaction that has written nothing would not wait for earlier commits of others.
        let xid = self.connection.run(
            "SELECT pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY ('{off,local}')
                    THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true),
                    pg_catalog.pg_logical_emit_message(true, 'shardmaster', '');
             SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text",
        )?;
        let status = status(xid.scalar().unwrap_or_default());
        let status = self.connection.run(&format!("COMMIT; SELECT {status}"))?;
        match status.scalar() {
            Some("committed") => Ok(()),
            _ => Err(error::not_committed(&self.shard.shard_key)),
        }
    }

    pub fn roll_back(&mut self) -> Result<(), Failure> {
        Ok(self.connection.run("ROLLBACK").map(drop)?)
    }

    /// Whether both are in one database of one running server, which neither addresses nor what a database knows of
    /// itself can show.
    pub fn shares_database(&mut self, other: &mut MoveSession) -> Result<bool, Failure> {
        let number = random();
        let take = format!("BEGIN; SELECT pg_catalog.pg_try_advisory_xact_lock({number})");
        let there = other.connection.run(&take)?;
        if there.scalar() != Some("t") {
            return Err(RemoteError::unreadable(other.connection.shard(), "a lock that nobody has").into());
        }
        let here = self.connection.run(&take)?;
        self.roll_back()?;
        other.roll_back()?;
        Ok(here.scalar() == Some("f"))
    }
}

/// Returns a random number, made of the keys with which this process makes its maps hard to guess.
fn random() -> i64 {
    use std::hash::BuildHasher;
    i64::from_ne_bytes(std::collections::hash_map::RandomState::new().hash_one(Instant::now()).to_ne_bytes())
}

/// Returns a query for the structure of tables.
pub fn seen(tables: &[String]) -> String {
    fill(include_str!("../../sql/misplaced/seen.sql"), &[("tables", texts(tables))])
}
