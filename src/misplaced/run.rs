//! A run, step by step, each of which is committed on the master before the next one begins.

use super::batch::{self, Done, Halt, MoveBatch, WhichRows, reach};
use super::doubt::{self, Settling};
use super::error;
use super::place::MovePlace;
use super::points::BEGUN;
use super::session::MoveSession;
use super::{conflicts, leftover, master, statements};
use crate::catalog::caller::Caller;
use crate::catalog::misplaced_run::{self, Action, Deletes, RunEnd, RunKey};
use crate::catalog::table_policy::TablePolicy;
use crate::catalog::{execution, misplaced_doubt, redirect};
use crate::error::Failure;
use crate::misplaced::fk_group::Unit;
use crate::misplaced::key_batch::{Lot, Wish};
use crate::misplaced::selection;
use crate::misplaced::table_pair::MovedTable;
use crate::query::run::schemas_of;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use crate::words::listed;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The task of a run.
pub struct MoveWork {
    pub action: Action,
    pub keyspace: String,
    pub shard: String,
    pub keys: Vec<RunKey>,
    pub tables: Vec<TablePolicy>,
    pub fire_triggers: bool,
    pub timeout: Duration,
    pub stage: MoveStage,
}

/// The stage of a run.
pub enum MoveStage {
    /// Its keys are held.
    Held,
    /// Its sessions are recorded.
    Open(OpenRun),
    /// Everything was checked, and nothing is refused.
    Ready(OpenRun, Vec<Lot>, MovePlace),
    /// What a batch is about to commit is recorded.
    Prepared(OpenRun, Vec<Lot>, MovePlace, Pending),
}

pub struct OpenRun {
    here: MoveSession,
    /// Another session there, which is in no transaction for longer than a statement. `None` if the login may not open
    /// another one.
    witness: Option<MoveSession>,
    /// The sessions by shard.
    there: BTreeMap<String, MoveSession>,
}

enum NextStage {
    Place(MovePlace),
    Commit(MovePlace, Pending),
}

/// What is about to be committed.
pub struct Pending {
    done: Vec<(usize, Done)>,
    /// The time since which no other session may write to its tables.
    alone_since: Option<Instant>,
}

impl MoveWork {
    /// Does what comes next. Returns false once all is done.
    pub fn next(&mut self, id: i64) -> Result<bool, Failure> {
        match std::mem::replace(&mut self.stage, MoveStage::Held) {
            MoveStage::Held => {
                self.take_over(id)?;
                self.stage = MoveStage::Open(self.open(id)?);
            }
            MoveStage::Open(open) => {
                reach(BEGUN)?;
                self.require_no_execution()?;
                for shard in std::iter::once(&self.shard).chain(open.there.keys()) {
                    master::require(shard, self.timeout)?;
                }
                let (open, lots) = self.look(open)?;
                self.stage = MoveStage::Ready(open, lots, MovePlace::default());
            }
            MoveStage::Ready(mut open, lots, place) => {
                self.stage = match self.work(id, &mut open, &lots, place)? {
                    None => return Ok(false),
                    Some(NextStage::Place(place)) => MoveStage::Ready(open, lots, place),
                    Some(NextStage::Commit(place, pending)) => {
                        MoveStage::Prepared(open, lots, place, pending)
                    }
                };
            }
            MoveStage::Prepared(mut open, lots, place, pending) => {
                let place = self.commit(id, &mut open, &lots, place, &pending)?;
                self.stage = MoveStage::Ready(open, lots, place);
            }
        }
        Ok(true)
    }

    /// Closes the run: what its sessions have begun is undone by their ends.
    pub fn close(&mut self) {
        self.stage = MoveStage::Held;
    }

    /// Takes over from runs whose sessions are gone.
    fn take_over(&self, id: i64) -> Result<(), Failure> {
        for before in Caller::as_owner(|_| misplaced_run::before(id)) {
            leftover::end(before, self.timeout)?;
            Caller::as_owner(|_| misplaced_run::ends(before, RunEnd::Interrupted, None));
        }
        Ok(())
    }

    /// Requires that no execution is running: one that has begun before the run was recorded is seen by now; a later
    /// one sees the run.
    fn require_no_execution(&self) -> Result<(), Failure> {
        let routed = self.keys.iter().filter_map(|key| key.routed_to.clone());
        let shards: Vec<String> = std::iter::once(self.shard.clone()).chain(routed).collect();
        match Caller::as_owner(|_| execution::of_shards(&shards)) {
            Some((id, shard)) => Err(error::execution_on_shard(&shard, id)),
            None => Ok(()),
        }
    }

    fn open(&self, id: i64) -> Result<OpenRun, Failure> {
        let schemas = Caller::as_owner(|_| schemas_of(&self.keyspace));
        let open = |shard: &str| {
            let session = MoveSession::open(leftover::way(shard, self.timeout)?, &schemas, self.timeout)?;
            Caller::as_owner(|_| misplaced_run::works_by(id, shard, &session.backend));
            Ok::<_, Failure>(session)
        };
        let here = open(&self.shard)?;
        let witness = match self.action {
            Action::Move => leftover::way(&self.shard, self.timeout)
                .and_then(|way| MoveSession::open(way, &schemas, self.timeout))
                .ok(),
            Action::Delete(_) => None,
        };
        let mut there = BTreeMap::new();
        for shard in self.keys.iter().filter_map(|key| key.routed_to.as_ref()) {
            if !there.contains_key(shard) {
                there.insert(shard.clone(), open(shard)?);
            }
        }
        Ok(OpenRun { here, witness, there })
    }

    /// Checks everything that could be refused, before anything is changed.
    fn look(&self, mut open: OpenRun) -> Result<(OpenRun, Vec<Lot>), Failure> {
        let mut keys: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for key in &self.keys {
            keys.entry(key.routed_to.clone()).or_default().push(key.key.clone());
        }
        let wish = Wish {
            action: self.action,
            keyspace: &self.keyspace,
            tables: &self.tables,
            fire_triggers: self.fire_triggers,
        };
        let mut lots = Vec::new();
        for (target, keys) in keys {
            let mut there = target.as_ref().and_then(|target| open.there.get_mut(target));
            open.here.patient_for(self.timeout);
            if let Some(there) = there.as_deref_mut() {
                there.patient_for(self.timeout);
            }
            lots.push(Lot::prepare(&wish, keys, &mut open.here, there)?);
        }
        let redirects = Caller::as_owner(|_| redirect::splits_of_shard(&self.shard));
        if !redirects.is_empty() {
            open.here.patient_for(self.timeout);
            lots.iter().try_for_each(|lot| require_no_redirect(lot, &mut open.here, &redirects))?;
        }
        // This comes first: a difference because a client has changed what an interrupted run had copied is reported
        // as such.
        for lot in &lots {
            if let (Some(target), Some(there)) = (&lot.target, self.there(lot, &mut open.there))
                && self.action == Action::Move
            {
                self.settle(lot, target, &mut open.here, there)?;
            }
        }
        for lot in &lots {
            if let Some(there) = self.there(lot, &mut open.there) {
                self.compare(lot, &mut open.here, there)?;
            }
        }
        Ok((open, lots))
    }

    /// Compares rows, so that a refusal comes before the first one is moved.
    fn compare(&self, lot: &Lot, here: &mut MoveSession, there: &mut MoveSession) -> Result<(), Failure> {
        match self.action {
            Action::Move => on_both(lot, here, there, self.timeout, |pair, there, shard| {
                batch::require_no_conflict(pair, &lot.keys, there, shard).map(drop)
            }),
            Action::Delete(Deletes::OnBoth) => {
                on_both(lot, here, there, self.timeout, |pair, there, shard| {
                    batch::require_there(pair, &lot.keys, there, shard).map(drop)
                })
            }
            Action::Delete(Deletes::Conflicting | Deletes::All) => Ok(()),
        }
    }

    /// Settles what had come to the right shard when a run was interrupted.
    fn settle(
        &self,
        lot: &Lot,
        target: &str,
        here: &mut MoveSession,
        there: &mut MoveSession,
    ) -> Result<(), Failure> {
        for doubt in Caller::as_owner(|_| misplaced_doubt::between(&self.keyspace, &self.shard, target)) {
            let is_table = |(name, _): &(String, u64)| lot.pairs.iter().any(|pair| pair.name == *name);
            let known = doubt.keys.iter().filter(|key| lot.keys.contains(key)).count();
            if known == 0 || !doubt.tables.iter().any(is_table) {
                continue;
            }
            if doubt::have_left(&doubt, here, self.timeout)? {
                Caller::as_owner(|_| misplaced_doubt::forget(doubt.run));
                continue;
            }
            if known < doubt.keys.len() || !doubt.tables.iter().all(is_table) {
                return Err(error::doubtful(doubt.run, target, &doubt.tables[0].0));
            }
            Settling { lot, doubt: &doubt, timeout: self.timeout }.run(here, there)?;
            Caller::as_owner(|_| misplaced_doubt::forget(doubt.run));
        }
        Ok(())
    }

    /// Works on a batch of rows. Returns None if none is left.
    fn work(
        &self,
        id: i64,
        open: &mut OpenRun,
        lots: &[Lot],
        place: MovePlace,
    ) -> Result<Option<NextStage>, Failure> {
        let Some(lot) = lots.get(place.lot) else { return Ok(None) };
        if self.action == Action::Delete(Deletes::Conflicting) {
            self.delete_conflicting(id, open, lot)?;
            return Ok(Some(NextStage::Place(place.next_lot())));
        }
        let Some(unit) = lot.units.get(place.unit) else {
            return Ok(Some(NextStage::Place(place.next_lot())));
        };
        let Some(keys) = place.keys(lot, unit) else { return Ok(Some(NextStage::Place(place.next_unit()))) };
        let mut place = place;
        let mut chosen = None;
        if !unit.is_whole && !place.is_last() {
            let pair = &lot.pairs[unit.tables[0]];
            if !place.is_listed {
                selection::list(&mut open.here, pair, keys, self.timeout)?;
                place = place.listed();
            }
            chosen = selection::next(&mut open.here, &lot.keys, self.timeout)?;
            if chosen.is_none() {
                // This is also recorded if there were none.
                Caller::as_owner(|_| misplaced_run::count(id, &pair.name, 0, 0));
                let left = is_left(lot, unit, keys, &mut open.here, self.timeout)?;
                return Ok(Some(NextStage::Place(place.after_all(left))));
            }
        }
        let of = match &chosen {
            Some(chosen) => WhichRows::Listed(chosen),
            None if place.is_last() => WhichRows::AllAlone,
            None => WhichRows::All,
        };
        let keys = chosen.as_ref().map_or(keys, |chosen| chosen.keys.as_slice());
        let batch = MoveBatch { lot, unit, keys, of, timeout: self.timeout };
        self.batch(id, open, lots, place, &batch).map(Some)
    }

    fn delete_conflicting(&self, id: i64, open: &mut OpenRun, lot: &Lot) -> Result<(), Failure> {
        let Some(there) = self.there(lot, &mut open.there) else { return Ok(()) };
        let deleted = conflicts::delete(lot, &mut open.here, there, self.timeout)?;
        batch::commit(&mut open.here, Some(there), self.timeout)?;
        Caller::as_owner(|_| {
            for (table, rows) in deleted {
                misplaced_run::count(id, table, 0, rows);
            }
        });
        Ok(())
    }

    fn batch(
        &self,
        id: i64,
        open: &mut OpenRun,
        lots: &[Lot],
        place: MovePlace,
        batch: &MoveBatch<'_>,
    ) -> Result<NextStage, Failure> {
        let alone_since = matches!(batch.of, WhichRows::AllAlone).then(Instant::now);
        let mut there = self.there(batch.lot, &mut open.there);
        let done = match batch.prepare(&mut open.here, there.as_deref_mut()) {
            Ok(done) => done,
            // Sessions that keep coming between are blocked in the end.
            Err(Halt::Between(why)) if alone_since.is_none() => {
                batch.undo(&mut open.here, there).map_err(|_| why)?;
                return Ok(NextStage::Place(place.in_vain()));
            }
            Err(Halt::Between(why) | Halt::Other(why)) => return Err(why),
        };
        let pending = Pending { done, alone_since };
        if let (Some(there), Some(target)) = (there, &batch.lot.target)
            && pending.done.iter().any(|(_, done)| done.moved > 0)
        {
            let way = doubt::way(&mut open.here, there, &mut open.witness, self.timeout)?;
            Caller::as_owner(|_| {
                for (position, done) in &pending.done {
                    let table = &batch.lot.pairs[*position].name;
                    misplaced_doubt::insert(id, target, &way, table, done.moved);
                }
            });
            return Ok(NextStage::Commit(place, pending));
        }
        self.commit(id, open, lots, place, &pending).map(NextStage::Place)
    }

    fn there<'a>(
        &self,
        lot: &Lot,
        there: &'a mut BTreeMap<String, MoveSession>,
    ) -> Option<&'a mut MoveSession> {
        lot.target.as_ref().filter(|_| self.action.compares()).and_then(|target| there.get_mut(target))
    }

    /// Commits the batch, and returns where to continue.
    fn commit(
        &self,
        id: i64,
        open: &mut OpenRun,
        lots: &[Lot],
        place: MovePlace,
        pending: &Pending,
    ) -> Result<MovePlace, Failure> {
        let lot = &lots[place.lot];
        let unit = &lot.units[place.unit];
        batch::commit(&mut open.here, self.there(lot, &mut open.there), self.timeout)?;
        if let Some(since) = pending.alone_since {
            notice_alone(lot, unit, &self.shard, since.elapsed());
        }
        Caller::as_owner(|_| {
            misplaced_doubt::forget(id);
            for (position, done) in &pending.done {
                misplaced_run::count(id, &lot.pairs[*position].name, done.moved, done.deleted);
            }
        });
        let place = place.with(pending.done.iter().map(|(_, done)| done.moved + done.deleted).sum());
        if pending.alone_since.is_some() {
            return Ok(place.next_key());
        }
        if !unit.is_whole {
            return Ok(place);
        }
        let keys = place.keys(lot, unit).unwrap_or_default();
        let left = is_left(lot, unit, keys, &mut open.here, self.timeout)?;
        Ok(place.after_all(left))
    }
}

fn is_left(
    lot: &Lot,
    unit: &Unit,
    keys: &[String],
    here: &mut MoveSession,
    timeout: Duration,
) -> Result<bool, Failure> {
    here.patient_for(timeout);
    let batch = MoveBatch { lot, unit, keys, of: WhichRows::All, timeout };
    Ok(batch.is_left(here)?.is_some())
}

/// Reports that clients of other keys have waited as well.
fn notice_alone(lot: &Lot, unit: &Unit, shard: &str, lasted: Duration) {
    let names: Vec<&str> = unit.tables.iter().map(|position| lot.pairs[*position].name.as_str()).collect();
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!(
            "nobody could write to {} on shard \"{shard}\" for at most {:.1} s, because rows kept coming",
            names.join(", "),
            lasted.as_secs_f64()
        ),
        "shardmaster",
    )
    .report(PgLogLevel::NOTICE);
}

/// Refuses redirects that splits have left at the wrong shard, which refuse writes to rows of keys that have left it.
/// Only a deletion shows whether one does: one row of each key and table is deleted, and this is undone.
fn require_no_redirect(lot: &Lot, here: &mut MoveSession, splits: &[i64]) -> Result<(), Failure> {
    for pair in &lot.pairs {
        for key in &lot.keys {
            let delete = statements::delete_one(pair, key);
            let begin = "BEGIN; SET LOCAL lock_timeout = '1s'";
            let tried = here.connection.run(&format!("{begin}; {}; {delete}", here.as_application()));
            match tried {
                Ok(_) => here.roll_back()?,
                // Rows that refer to it prevent this deletion, but not a move of all of them.
                Err(error) if error.sqlstate.is_some_and(|state| state.as_str().starts_with("23")) => {
                    here.roll_back()?;
                }
                Err(error) if error.is("SM001") => {
                    return Err(error::redirected(&here.shard.shard_key, key, &listed(splits)));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Sends all rows of the keys to the right shard's stages, where they are checked.
fn on_both(
    lot: &Lot,
    here: &mut MoveSession,
    there: &mut MoveSession,
    timeout: Duration,
    look: impl Fn(&MovedTable, &mut MoveSession, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let shard = here.shard.shard_key.clone();
    for pair in &lot.pairs {
        here.patient_for(timeout);
        there.patient_for(timeout);
        here.connection.run(&format!("BEGIN READ ONLY; {}", here.as_application()))?;
        there.connection.run(&format!("BEGIN; {}", there.as_application()))?;
        batch::make_stage(there, pair)?;
        let (out, into) = (statements::read(pair, &lot.keys), statements::fill_stage(pair));
        pipe::statements(&mut here.connection, &out, &mut there.connection, &into, Bounds::unlimited())
            .map_err(|error| error.of_table(&pair.name))?;
        look(pair, there, &shard)?;
        here.roll_back()?;
        there.roll_back()?;
    }
    Ok(())
}
