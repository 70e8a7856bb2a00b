//! Rows of a table as a stream of pairs, read in one snapshot: all of them, or those of some owners.

use super::columns::Compared;
use super::points;
use super::session::Sessions;
use super::settle::{self, BATCH, LONGEST};
use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::{self as agent, Capture, Shape, Watched};
use crate::catalog::lookup::Lookup;
use crate::catalog::lookup_entry::Pair;
use crate::catalog::shard::Shard;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal, text_array};
use crate::server::injection::reach;
use std::collections::BTreeSet;

/// An open cursor.
pub struct Stream {
    connection: Connection,
    /// What the table was when it was opened.
    pub shape: Shape,
    /// What has been read, and is not settled yet.
    batch: BTreeSet<Pair>,
    /// There is nothing behind it.
    is_last: bool,
}

impl Stream {
    /// None: there is no such table. Its lock is there before its snapshot, so that nothing truncates or rewrites the table
    /// in between.
    pub fn open(
        sessions: &mut Sessions,
        shard: &Shard,
        watched: &Watched,
        capture: Capture,
        owners: Option<&[String]>,
    ) -> Result<Option<Stream>> {
        // Looks at whose code it would be.
        sessions.for_reading(shard, watched)?;
        let mut connection = Sessions::patient(shard)?;
        if connection.query("SELECT to_regclass($1)", &[Some(&watched.qualified())])?.scalar().is_none() {
            return Ok(None);
        }
        let (table, key, by) = (watched.qualified(), ident(&watched.column), ident(&watched.shard_by));
        connection.run(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE {table} IN ACCESS SHARE MODE"
        ))?;
        let Some(shape) = agent::shape(&mut connection, watched, capture)? else { return Ok(None) };
        let of = match (owners, Compared::by_name(&shape.owner_type)) {
            (Some(owners), Some(compared)) => {
                let owners: Vec<String> =
                    owners.iter().filter(|owner| compared.may_have(owner)).cloned().collect();
                let list = literal(&text_array(&owners));
                format!(" WHERE t.{by} = ANY ({list}::{}[])", compared.cast)
            }
            _ => String::new(),
        };
        // What can be in no look-up is answered all the same, without its text: a shard that reads on and on over such rows
        // would be silent meanwhile.
        let short = |column: &str| {
            format!("CASE WHEN octet_length(t.{column}::text) <= {LONGEST} THEN t.{column}::text END")
        };
        connection.run(&format!(
            "DECLARE pairs NO SCROLL CURSOR FOR SELECT {}, {} FROM {table} t{of}",
            short(&key),
            short(&by)
        ))?;
        Ok(Some(Stream { connection, shape, batch: BTreeSet::new(), is_last: false }))
    }

    pub fn shard(&self) -> &str {
        self.connection.shard()
    }

    /// Settles the next pairs; false: there are none left. After a `Retry` the same ones again. Its transaction ends with it.
    pub fn step(&mut self, sessions: &mut Sessions, lookup: &Lookup) -> Result<bool> {
        if self.batch.is_empty() && !self.is_last {
            let rows = self.connection.run(&format!("FETCH {BATCH} FROM pairs"))?.rows;
            self.is_last = rows.len() < BATCH;
            self.batch = rows
                .iter()
                .filter_map(|row| match row.as_slice() {
                    [key, owner] => settle::canonical(lookup, key.as_deref(), owner.as_deref()),
                    _ => None,
                })
                .collect();
            reach(&points::FETCHED)?;
        }
        settle::settle_all(sessions, lookup, self.batch.clone())?;
        self.batch.clear();
        Ok(!self.is_last)
    }
}

/// Those that are under way and may have been captured by nobody: the fill begins after their end.
pub struct Earlier(String);

impl Earlier {
    pub fn now(connection: &mut Connection) -> Result<Earlier> {
        let snapshot = connection.run("SELECT pg_current_snapshot()")?;
        match snapshot.scalar() {
            Some(text) => Ok(Earlier(text.to_owned())),
            None => Err(SplitError::Retry(format!("a snapshot of shard \"{}\"", connection.shard()))),
        }
    }

    /// How many of them still run.
    pub fn left(&self, connection: &mut Connection) -> Result<i64> {
        let count = format!(
            "SELECT count(*) FROM pg_snapshot_xip({}::pg_snapshot) AS x (xid)
              WHERE x.xid IN (SELECT * FROM pg_snapshot_xip(pg_current_snapshot()))",
            literal(&self.0)
        );
        Ok(connection.count("the number of transactions", &count)?)
    }
}
