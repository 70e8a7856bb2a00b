//! Rows that had come to the right shard when a run was interrupted, before they had left the wrong one. Clients may
//! have deleted or changed them since at the right shard, so they are never inserted there again: they are only
//! deleted at the wrong one.

use super::batch::{begin, make_stage};
use super::error;
use super::session::{MoveSession, Sees};
use super::statements;
use crate::catalog::misplaced_doubt::{DoubtedBatch, MoveDoubt};
use crate::error::Failure;
use crate::misplaced::fk_group::Unit;
use crate::misplaced::key_batch::Lot;
use crate::misplaced::table_pair::MovedTable;
use crate::remote::RemoteError;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use crate::remote::transaction::{FLUSH, FLUSHED, IDENTITY, Transaction, TransactionFate, status};
use std::time::Duration;

/// Reads the open transaction of a session.
fn transaction(session: &mut MoveSession) -> Result<Transaction, Failure> {
    let found = session
        .connection
        .run(&format!("SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text, {IDENTITY}, {FLUSHED}"))?;
    let cells: Vec<String> = found.rows.into_iter().flatten().flatten().collect();
    let Ok([xid, system_identifier, timeline, flushed]) = <[String; 4]>::try_from(cells) else {
        return Err(RemoteError::unreadable(session.connection.shard(), "its transaction").into());
    };
    Ok(Transaction { xid, system_identifier, timeline, flushed })
}

/// Returns the open transactions of both sides. `witness`: another session at the wrong shard, which makes it write
/// the number of its transaction; if it fails, it is not asked again.
pub fn way(
    here: &mut MoveSession,
    there: &mut MoveSession,
    witness: &mut Option<MoveSession>,
    timeout: Duration,
) -> Result<DoubtedBatch, Failure> {
    let arrived = transaction(there)?;
    let left = transaction(here)?;
    let left = witness.as_mut().and_then(|witness| written(witness, left, timeout));
    if left.is_none() {
        *witness = None;
    }
    Ok(DoubtedBatch { arrived, left })
}

/// Returns the transaction, once its number is in the log.
fn written(witness: &mut MoveSession, known: Transaction, timeout: Duration) -> Option<Transaction> {
    witness.patient_for(timeout);
    let question = format!("{FLUSH}; SELECT {IDENTITY}, {FLUSHED}, {}", status(&known.xid));
    let found = witness.connection.run(&question).ok()?;
    let cells: Vec<String> = found.rows.into_iter().flatten().flatten().collect();
    let [system, timeline, flushed, status] = <[String; 4]>::try_from(cells).ok()?;
    let is_it = system == known.system_identifier && timeline == known.timeline && status == "in progress";
    is_it.then_some(Transaction { flushed, ..known })
}

/// Whether the rows have left the wrong shard, for good.
pub fn have_left(doubt: &MoveDoubt, here: &mut MoveSession, timeout: Duration) -> Result<bool, Failure> {
    let Some(left) = &doubt.way.left else { return Ok(false) };
    here.patient_for(timeout);
    if fate(left, here)? != TransactionFate::Committed {
        return Ok(false);
    }
    // That commit may not have waited for its standbys: a later commit has.
    here.connection.run(FLUSH)?;
    Ok(true)
}

fn fate(transaction: &Transaction, session: &mut MoveSession) -> Result<TransactionFate, Failure> {
    let found = session.connection.run(&format!("SELECT {}", transaction.columns()))?;
    let cells = found.cells();
    let unreadable = || RemoteError::unreadable(session.connection.shard(), "the outcome of a transaction");
    Ok(transaction.fate(&cells).ok_or_else(unreadable)?)
}

pub struct Settling<'a> {
    pub lot: &'a Lot,
    pub doubt: &'a MoveDoubt,
    pub timeout: Duration,
}

impl Settling<'_> {
    /// Settles the doubt. Its sessions are gone, so the transaction has ended.
    pub fn run(&self, here: &mut MoveSession, there: &mut MoveSession) -> Result<(), Failure> {
        here.patient_for(self.timeout);
        there.patient_for(self.timeout);
        let fate = fate(&self.doubt.way.arrived, there)?;
        if matches!(fate, TransactionFate::Aborted | TransactionFate::NotGiven) {
            return Ok(());
        }
        let mut is_left = false;
        for (pair, _) in self.pairs() {
            let found = here.connection.run(&statements::exists(pair, &self.doubt.keys))?;
            is_left = is_left || found.scalar() != Some("f");
        }
        match fate {
            _ if !is_left => Ok(()),
            TransactionFate::Committed => self.take_away(here, there),
            _ => self.refuse(&self.doubt.tables[0].0, there),
        }
    }

    /// Returns the tables, those that refer to others first, with how many rows have come.
    fn pairs(&self) -> Vec<(&MovedTable, u64)> {
        let tables = self.lot.units.iter().flat_map(|unit: &Unit| unit.tables.iter().rev());
        let pairs = tables.map(|position| &self.lot.pairs[*position]);
        let come = |pair: &MovedTable| {
            self.doubt.tables.iter().find(|(name, _)| *name == pair.name).map(|(_, rows)| *rows)
        };
        pairs.filter_map(|pair| come(pair).map(|rows| (pair, rows))).collect()
    }

    /// Deletes the rows on the wrong shard. The right shard returns which rows have come by the transaction. Either
    /// all of them exist there unchanged, or it is unknown which ones were deleted.
    fn take_away(&self, here: &mut MoveSession, there: &mut MoveSession) -> Result<(), Failure> {
        let facts = [Some(&self.lot.here), self.lot.there.as_ref()];
        for (session, facts) in [&mut *here, &mut *there].into_iter().zip(facts.into_iter().flatten()) {
            begin(session, facts, Sees::Latest, &[], self.timeout)?;
        }
        for (pair, rows) in self.pairs() {
            here.connection.run(&statements::make_arrived(pair))?;
            let (out, into) =
                (statements::arrived(pair, &self.doubt.way.arrived.xid), statements::fill_arrived(pair));
            self.copy_rows(pair, [&out, &into], there, here)?;
            let found = here.connection.run(&statements::count_arrived(pair))?;
            if found.scalar() != Some(rows.to_string().as_str()) {
                return self.refuse(&pair.name, there);
            }
            make_stage(there, pair)?;
            let (out, into) =
                (statements::take_arrived(pair, &self.doubt.keys), statements::fill_stage(pair));
            self.copy_rows(pair, [&out, &into], here, there)?;
            there.connection.run(&statements::drop_equal(pair, &self.doubt.keys))?;
            if there.connection.run(&statements::is_staged(pair))?.scalar() != Some("f") {
                return self.refuse(&pair.name, there);
            }
        }
        here.connection.run("SET CONSTRAINTS ALL IMMEDIATE")?;
        // What has been seen there survives a crash.
        there.commit()?;
        here.commit()
    }

    fn copy_rows(
        &self,
        pair: &MovedTable,
        [out, into]: [&str; 2],
        from: &mut MoveSession,
        to: &mut MoveSession,
    ) -> Result<(), Failure> {
        pipe::statements(&mut from.connection, out, &mut to.connection, into, Bounds::unlimited())
            .map(drop)
            .map_err(|error| error.of_table(&pair.name).into())
    }

    fn refuse(&self, table: &str, there: &MoveSession) -> Result<(), Failure> {
        Err(error::doubtful(self.doubt.run, &there.shard.shard_key, table))
    }
}
