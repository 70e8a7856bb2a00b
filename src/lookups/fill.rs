//! Rows of a table as a stream of pairs, read in one snapshot: all of them, or those of some owners.

use super::columns::ComparedAs;
use super::points;
use super::session::{LookupSessions, SessionLook};
use super::settle::{self, BATCH, LONGEST};
use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::{self as agent, Capture, LookupShape, WatchedColumn};
use crate::catalog::lookup::Lookup;
use crate::catalog::lookup_entry::LookupPair;
use crate::catalog::shard::Shard;
use crate::catalog::trusted_owner;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal, text_array};
use crate::server::injection::reach;
use crate::server::txn::transaction;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const EARLIER: &str = include_str!("../../sql/lookup/earlier.sql");

/// The number of locked pairs up to which they are left for the end.
const LATER: usize = 10_000;
/// How long a cursor without progress stays open: its snapshot and its lock block others.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub struct FillStream {
    shard: String,
    /// The session with the cursor. `None` once everything was read.
    reading: Option<Connection>,
    /// The table as it was when it was opened.
    pub shape: LookupShape,
    /// Pairs that were read, and are not settled yet.
    batch: BTreeSet<LookupPair>,
    /// Pairs that another session has locked.
    later: BTreeSet<LookupPair>,
    /// The time since which nothing could be settled.
    stuck: Option<Instant>,
}

impl FillStream {
    /// Opens a stream. Returns None if there is no such table. Its lock is taken before its snapshot, so that nothing
    /// truncates or rewrites the table in between.
    pub fn open(
        sessions: &mut LookupSessions,
        shard: &Shard,
        watched: &WatchedColumn,
        capture: Capture,
        owners: Option<&[String]>,
    ) -> Result<Option<FillStream>> {
        // A shard that does not answer is not asked again for a while.
        sessions.of(shard)?;
        let mut connection = LookupSessions::patient(shard)?;
        let (table, key, by) = (watched.qualified(), ident(&watched.column), ident(&watched.shard_by));
        let trusted = transaction(|| trusted_owner::of(shard));
        let how = "ISOLATION LEVEL REPEATABLE READ READ ONLY";
        if !SessionLook::default().begin(&mut connection, watched, &trusted, how)? {
            return Ok(None);
        }
        let Some(shape) = agent::shape(&mut connection, watched, capture)? else { return Ok(None) };
        let of = match (owners, ComparedAs::by_name(&shape.owner_type)) {
            (Some(owners), Some(compared)) => {
                let owners: Vec<String> =
                    owners.iter().filter(|owner| compared.may_have(owner)).cloned().collect();
                let list = literal(&text_array(&owners));
                format!(" WHERE t.{by} = ANY ({list}::{}[])", compared.cast)
            }
            _ => String::new(),
        };
        // Values that are too long for a lookup index are returned without their text: a shard that scanned many such
        // rows would otherwise be silent meanwhile.
        let short = |column: &str| {
            format!("CASE WHEN octet_length(t.{column}::text) <= {LONGEST} THEN t.{column}::text END")
        };
        connection.run(&format!(
            "DECLARE pairs NO SCROLL CURSOR FOR SELECT {}, {} FROM {table} t{of}",
            short(&key),
            short(&by)
        ))?;
        Ok(Some(FillStream {
            shard: shard.shard_key.clone(),
            reading: Some(connection),
            shape,
            batch: BTreeSet::new(),
            later: BTreeSet::new(),
            stuck: None,
        }))
    }

    pub fn shard(&self) -> &str {
        &self.shard
    }

    /// Settles the next pairs. Returns false if none are left. After a `Retry` the same ones are tried again.
    pub fn step(&mut self, sessions: &mut LookupSessions, lookup: &Lookup) -> Result<bool> {
        let outcome = self.try_step(sessions, lookup);
        match outcome {
            Err(_) => self.stuck.get_or_insert_with(Instant::now),
            Ok(_) => return outcome.inspect(|_| self.stuck = None),
        };
        outcome
    }

    /// Whether the cursor blocks others without progress.
    pub fn is_in_the_way(&self) -> bool {
        self.reading.is_some() && self.stuck.is_some_and(|since| since.elapsed() >= LONGEST_WAIT)
    }

    fn try_step(&mut self, sessions: &mut LookupSessions, lookup: &Lookup) -> Result<bool> {
        if self.batch.is_empty() {
            match &mut self.reading {
                Some(connection) if self.later.len() < LATER => {
                    let rows = connection.run(&format!("FETCH {BATCH} FROM pairs"))?.rows;
                    // The transaction ends with its session.
                    if rows.len() < BATCH {
                        self.reading = None;
                    }
                    let pair = |row: &Vec<Option<String>>| match row.as_slice() {
                        [key, owner] => settle::canonical(lookup, key.as_deref(), owner.as_deref()),
                        _ => None,
                    };
                    self.batch = rows.iter().filter_map(pair).collect();
                    reach(points::FETCHED)?;
                }
                _ => self.batch.append(&mut self.later),
            }
        }
        let locked = settle::settle_unlocked(sessions, lookup, self.batch.clone(), Some(&self.shard))?;
        let is_again = self.reading.is_none() || self.later.len() + locked.len() >= LATER;
        self.batch.clear();
        self.later.extend(locked);
        if is_again {
            settle::require_none(&self.later)?;
        }
        Ok(self.reading.is_some() || !self.later.is_empty())
    }
}

/// Running transactions that may not have been captured: the fill begins after their end.
pub struct EarlierTransactions(String);

impl EarlierTransactions {
    pub fn now(connection: &mut Connection) -> Result<EarlierTransactions> {
        let snapshot = connection.run("SELECT pg_current_snapshot()")?;
        match snapshot.scalar() {
            Some(text) => Ok(EarlierTransactions(text.to_owned())),
            None => Err(SplitError::Retry(format!("a snapshot of shard \"{}\"", connection.shard()))),
        }
    }

    /// Describes those of them that have written to the table and still run, or returns None if there are none.
    pub fn left(&self, connection: &mut Connection, watched: &WatchedColumn) -> Result<Option<String>> {
        let answer = connection.query(EARLIER, &[Some(&self.0), Some(&watched.qualified())])?;
        let [Some(count), Some(who)] = answer.rows.first().map_or(&[][..], Vec::as_slice) else {
            return Ok(None);
        };
        Ok(Some(format!("the end of {count} transactions that are older than the fill: {who}")))
    }
}
