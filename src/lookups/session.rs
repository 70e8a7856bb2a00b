//! The worker's sessions on shards: one each, for all lookup indexes.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::WatchedColumn;
use crate::agent::table_names::TableNames;
use crate::agent::{self, catalogs, reading, session, untrusted_code};
use crate::catalog::shard::Shard;
use crate::catalog::trusted_owner;
use crate::guc;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::server::txn::transaction;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a shard is waited for, and how long it is not asked after that: the time doubles with each failed attempt.
const FIRST: Duration = Duration::from_secs(3);
const DOUBLINGS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(400);
const PAUSE_DOUBLINGS: u32 = 6;

struct OpenSession {
    connection: Connection,
    /// The shard's connection string when it was opened.
    conninfo: Option<String>,
    look: SessionLook,
}

#[derive(Default)]
pub struct LookupSessions {
    open: HashMap<String, OpenSession>,
    failed: HashMap<String, SilentShard>,
}

/// A shard that did not answer.
struct SilentShard {
    attempts: u32,
    /// The time until which work for other shards continues without it.
    until: Instant,
    why: String,
}

impl LookupSessions {
    /// Returns the session of a shard.
    pub fn of(&mut self, shard: &Shard) -> Result<&mut Connection> {
        self.entry(shard).map(|open| &mut open.connection)
    }

    fn entry(&mut self, shard: &Shard) -> Result<&mut OpenSession> {
        if self.open.get(&shard.shard_key).is_some_and(|open| open.conninfo != shard.conninfo) {
            self.open.remove(&shard.shard_key);
        }
        if !self.open.contains_key(&shard.shard_key) {
            if let Some(failed) =
                self.failed.get(&shard.shard_key).filter(|failed| Instant::now() < failed.until)
            {
                return Err(SplitError::Retry(failed.why.clone()));
            }
            let connection = self.another(shard)?;
            let open =
                OpenSession { connection, conninfo: shard.conninfo.clone(), look: SessionLook::default() };
            self.open.insert(shard.shard_key.clone(), open);
        }
        match self.open.get_mut(&shard.shard_key) {
            Some(open) => Ok(open),
            None => Err(SplitError::Retry(format!("shard \"{}\"", shard.shard_key))),
        }
    }

    /// Opens another session, for its caller only, with the usual limits: it reads tables.
    pub fn patient(shard: &Shard) -> Result<Connection> {
        Ok(session::open(shard, "lookup indexes")?)
    }

    fn another(&self, shard: &Shard) -> Result<Connection> {
        Ok(session::open_within(shard, "lookup indexes", self.longest(&shard.shard_key))?)
    }

    fn longest(&self, shard_key: &str) -> Duration {
        let attempts = self.failed.get(shard_key).map_or(0, |failed| failed.attempts).min(DOUBLINGS);
        FIRST.saturating_mul(1 << attempts).min(guc::remote_timeout().max(FIRST))
    }

    /// Notes an error: the session is not used again, and the next one waits longer.
    pub fn failed(&mut self, shard_key: &str, why: &SplitError) {
        self.open.remove(shard_key);
        let attempts = self.failed.get(shard_key).map_or(0, |failed| failed.attempts) + 1;
        let until = Instant::now() + FIRST_PAUSE.saturating_mul(1 << attempts.min(PAUSE_DOUBLINGS));
        self.failed.insert(shard_key.to_owned(), SilentShard { attempts, until, why: why.to_string() });
    }

    pub fn succeeded(&mut self, shard_key: &str) {
        self.failed.remove(shard_key);
    }

    /// Reads a table of a shard after checking that this runs no code of others: under its lock, so that this stays
    /// true. Returns None if there is no such table.
    pub fn reading<T>(
        &mut self,
        shard: &Shard,
        watched: &WatchedColumn,
        body: impl FnOnce(&mut Connection) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let trusted = transaction(|| trusted_owner::of(shard));
        let open = self.entry(shard)?;
        if !open.look.begin(&mut open.connection, watched, &trusted, "")? {
            return Ok(None);
        }
        let outcome = body(&mut open.connection);
        reading::end(&mut open.connection, outcome)
    }
}

/// What tables could run when it was last checked, by their names.
#[derive(Default)]
pub struct SessionLook(HashMap<String, (String, Vec<String>)>);

impl SessionLook {
    /// Begins a transaction, with the given settings, that locks the table before it checks. Returns false if there is
    /// no such table, and then no transaction is open.
    pub fn begin(
        &mut self,
        connection: &mut Connection,
        watched: &WatchedColumn,
        trusted: &[String],
        how: &str,
    ) -> Result<bool> {
        let code = code_statements(connection, watched)?;
        let lock = format!("BEGIN {how}; LOCK TABLE {} IN ACCESS SHARE MODE", watched.qualified());
        let error = match connection.run_for_each(&format!("{lock}; {code}")) {
            Ok(answers) => {
                let code = answers.first().and_then(Rows::scalar).unwrap_or_default();
                return self.require_none(connection, watched, code, trusted).map(|()| true);
            }
            Err(error) => error,
        };
        connection.run("ROLLBACK")?;
        if ["42P01", "3F000"].iter().any(|code| error.is(code)) {
            return Ok(false);
        }
        if error.is_verdict() {
            // What cannot be locked is code of another role, or another server.
            untrusted_code::refuse(connection, &names(watched), trusted)?;
        }
        Err(error.into())
    }

    /// Refuses code of others that the mover would run with its rights; this is read if the tables could run other
    /// code.
    fn require_none(
        &mut self,
        connection: &mut Connection,
        watched: &WatchedColumn,
        code: &str,
        trusted: &[String],
    ) -> Result<()> {
        let (table, code) = (watched.qualified(), (code.to_owned(), trusted.to_vec()));
        if self.0.get(&table) != Some(&code) {
            untrusted_code::refuse(connection, &names(watched), trusted)?;
            self.0.insert(table, code);
        }
        Ok(())
    }
}

fn names(watched: &WatchedColumn) -> TableNames {
    TableNames::one(&watched.schema, &watched.table)
}

/// Returns statements for what the table could run, as one number; one of them gives rows.
fn code_statements(connection: &mut Connection, watched: &WatchedColumn) -> Result<String> {
    let lists = names(watched).lists();
    let none = Some("{}");
    let parameters = [Some(lists[0].as_str()), Some(lists[1].as_str()), none, none, none];
    Ok(catalogs::statements(connection, "code", &agent::CODE, &parameters)?)
}
