//! The worker's sessions on shards: one each, for all look-ups.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::Watched;
use crate::agent::{self, catalogs, owners, session};
use crate::catalog::shard::Shard;
use crate::catalog::trusted_owner;
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::text_array;
use crate::server::txn::transaction;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a shard is waited for, and how long it is left alone after that: twice as long with each attempt in vain.
const FIRST: Duration = Duration::from_secs(3);
const DOUBLINGS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(400);
const PAUSE_DOUBLINGS: u32 = 6;

struct Open {
    connection: Connection,
    /// Where the shard was when it was opened.
    conninfo: Option<String>,
    /// What the tables could run when that was last looked through, by their names.
    code: HashMap<String, (String, Vec<String>)>,
}

#[derive(Default)]
pub struct Sessions {
    open: HashMap<String, Open>,
    failed: HashMap<String, Failed>,
}

/// Of a shard that did not answer.
struct Failed {
    attempts: u32,
    /// Whoever needs it for others' sake goes on without it until then.
    until: Instant,
    why: String,
}

impl Sessions {
    /// The session of a shard.
    pub fn of(&mut self, shard: &Shard) -> Result<&mut Connection> {
        self.entry(shard).map(|open| &mut open.connection)
    }

    fn entry(&mut self, shard: &Shard) -> Result<&mut Open> {
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
            let open = Open { connection, conninfo: shard.conninfo.clone(), code: HashMap::new() };
            self.open.insert(shard.shard_key.clone(), open);
        }
        match self.open.get_mut(&shard.shard_key) {
            Some(open) => Ok(open),
            None => Err(SplitError::Retry(format!("shard \"{}\"", shard.shard_key))),
        }
    }

    /// One more, which its user keeps, and whose answers take as long as elsewhere: it reads tables.
    pub fn patient(shard: &Shard) -> Result<Connection> {
        Ok(session::open(shard, "look-ups")?)
    }

    fn another(&self, shard: &Shard) -> Result<Connection> {
        Ok(session::open_within(shard, "look-ups", self.patience(&shard.shard_key))?)
    }

    fn patience(&self, shard_key: &str) -> Duration {
        let attempts = self.failed.get(shard_key).map_or(0, |failed| failed.attempts).min(DOUBLINGS);
        FIRST.saturating_mul(1 << attempts).min(guc::remote_timeout().max(FIRST))
    }

    /// The session is not used again after an error, and the next one waits longer.
    pub fn failed(&mut self, shard_key: &str, why: &SplitError) {
        self.open.remove(shard_key);
        let attempts = self.failed.get(shard_key).map_or(0, |failed| failed.attempts) + 1;
        let until = Instant::now() + FIRST_PAUSE.saturating_mul(1 << attempts.min(PAUSE_DOUBLINGS));
        self.failed.insert(shard_key.to_owned(), Failed { attempts, until, why: why.to_string() });
    }

    pub fn succeeded(&mut self, shard_key: &str) {
        self.failed.remove(shard_key);
    }

    /// A session that is about to read a table, once it is known that nobody else's code runs by that.
    pub fn for_reading(&mut self, shard: &Shard, watched: &Watched) -> Result<&mut Connection> {
        let trusted = transaction(|| trusted_owner::of(shard));
        let open = self.entry(shard)?;
        require_none(open, watched, &trusted)?;
        Ok(&mut open.connection)
    }
}

/// Refuses code of others that the mover would run with its rights; looked for when the tables could run another one.
fn require_none(open: &mut Open, watched: &Watched, trusted: &[String]) -> Result<()> {
    let table = watched.qualified();
    let code = {
        let lists = [[watched.schema.clone()], [watched.table.clone()]].map(|list| text_array(&list));
        let none = "{}";
        let parameters =
            [Some(lists[0].as_str()), Some(lists[1].as_str()), Some(none), Some(none), Some(none)];
        let answer = catalogs::ask_again(&mut open.connection, "code", &agent::CODE, &parameters)?;
        (answer.scalar().unwrap_or_default().to_owned(), trusted.to_vec())
    };
    if open.code.get(&table) == Some(&code) {
        return Ok(());
    }
    let names = (vec![watched.schema.clone()], vec![watched.table.clone()]);
    owners::refuse(&mut open.connection, names, trusted)?;
    open.code.insert(table, code);
    Ok(())
}
