//! A run, step by step, each of which is committed on the master before the next one begins.

use super::batch::{self, Batch, Done, Halt, Of, reach};
use super::chosen;
use super::conflicts;
use super::doubt::{self, Settling};
use super::error::MisplacedError;
use super::leftover;
use super::lot::{Lot, Wish};
use super::master;
use super::pair::Pair;
use super::place::Place;
use super::points::BEGUN;
use super::session::Session;
use super::statements;
use super::unit::Unit;
use crate::catalog::caller::Caller;
use crate::catalog::misplaced_doubt;
use crate::catalog::misplaced_run::{self, Action, Deletes, End, Key};
use crate::catalog::table_policy::TablePolicy;
use crate::catalog::{execution, redirect};
use crate::error::Failure;
use crate::query::run::schemas_of;
use crate::remote::copy::{self, Bounds};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What it is to do.
pub struct Work {
    pub action: Action,
    pub keyspace: String,
    pub shard: String,
    pub keys: Vec<Key>,
    pub tables: Vec<TablePolicy>,
    pub fire_triggers: bool,
    pub timeout: Duration,
    pub stage: Stage,
}

/// How far it is.
pub enum Stage {
    /// Its keys are held.
    Held,
    /// Its sessions are written down.
    Open(Open),
    /// All is looked at, and nothing is refused.
    Ready(Open, Vec<Lot>, Place),
    /// What a batch is about to commit is written down.
    Prepared(Open, Vec<Lot>, Place, Pending),
}

pub struct Open {
    here: Session,
    /// Another one there, which is in no transaction for longer than a statement. None: the login may have no other one.
    witness: Option<Session>,
    /// By shard.
    there: BTreeMap<String, Session>,
}

enum Next {
    Place(Place),
    Commit(Place, Pending),
}

/// What is about to be committed.
pub struct Pending {
    done: Vec<(usize, Done)>,
    /// Since when nobody else writes to its tables.
    alone_since: Option<Instant>,
}

impl Work {
    /// Does what comes next; false: all is done.
    pub fn next(&mut self, id: i64) -> Result<bool, Failure> {
        match std::mem::replace(&mut self.stage, Stage::Held) {
            Stage::Held => {
                self.take_over(id)?;
                self.stage = Stage::Open(self.open(id)?);
            }
            Stage::Open(open) => {
                reach(&BEGUN)?;
                self.require_no_execution()?;
                for shard in std::iter::once(&self.shard).chain(open.there.keys()) {
                    master::require(shard, self.timeout)?;
                }
                let (open, lots) = self.look(open)?;
                self.stage = Stage::Ready(open, lots, Place::default());
            }
            Stage::Ready(mut open, lots, place) => {
                self.stage = match self.work(id, &mut open, &lots, place)? {
                    None => return Ok(false),
                    Some(Next::Place(place)) => Stage::Ready(open, lots, place),
                    Some(Next::Commit(place, pending)) => Stage::Prepared(open, lots, place, pending),
                };
            }
            Stage::Prepared(mut open, lots, place, pending) => {
                let place = self.commit(id, &mut open, &lots, place, &pending)?;
                self.stage = Stage::Ready(open, lots, place);
            }
        }
        Ok(true)
    }

    /// Whatever its sessions have begun is undone by their ends.
    pub fn close(&mut self) {
        self.stage = Stage::Held;
    }

    /// Of runs whose sessions are gone.
    fn take_over(&self, id: i64) -> Result<(), Failure> {
        for before in Caller::as_owner(|_| misplaced_run::before(id)) {
            leftover::end(before, self.timeout)?;
            Caller::as_owner(|_| misplaced_run::ends(before, End::Interrupted, None));
        }
        Ok(())
    }

    /// One that has begun before the run was written down is seen by now; one that comes later sees the run.
    fn require_no_execution(&self) -> Result<(), Failure> {
        let routed = self.keys.iter().filter_map(|key| key.routed_to.clone());
        let shards: Vec<String> = std::iter::once(self.shard.clone()).chain(routed).collect();
        match Caller::as_owner(|_| execution::of_shards(&shards)) {
            Some((id, shard)) => Err(MisplacedError::Execution { id, shard }.into()),
            None => Ok(()),
        }
    }

    fn open(&self, id: i64) -> Result<Open, Failure> {
        let schemas = Caller::as_owner(|_| schemas_of(&self.keyspace));
        let open = |shard: &str| {
            let session = Session::open(leftover::way(shard, self.timeout)?, &schemas, self.timeout)?;
            Caller::as_owner(|_| misplaced_run::works_by(id, shard, &session.backend));
            Ok::<_, Failure>(session)
        };
        let here = open(&self.shard)?;
        let witness = match self.action {
            Action::Move => leftover::way(&self.shard, self.timeout)
                .and_then(|way| Session::open(way, &schemas, self.timeout))
                .ok(),
            Action::Delete(_) => None,
        };
        let mut there = BTreeMap::new();
        for shard in self.keys.iter().filter_map(|key| key.routed_to.as_ref()) {
            if !there.contains_key(shard) {
                there.insert(shard.clone(), open(shard)?);
            }
        }
        Ok(Open { here, witness, there })
    }

    /// Before anything is changed all that would be refused is.
    fn look(&self, mut open: Open) -> Result<(Open, Vec<Lot>), Failure> {
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
        // First: what differs because a client has changed what an interrupted run had copied is told as that.
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

    /// What would be refused of rows is found before the first one goes.
    fn compare(&self, lot: &Lot, here: &mut Session, there: &mut Session) -> Result<(), Failure> {
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

    /// What has come to the right shard by a run that was interrupted then.
    fn settle(
        &self,
        lot: &Lot,
        target: &str,
        here: &mut Session,
        there: &mut Session,
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
                let (table, shard) = (doubt.tables[0].0.clone(), target.to_owned());
                return Err(MisplacedError::Doubtful { run: doubt.run, table, shard }.into());
            }
            Settling { lot, doubt: &doubt, timeout: self.timeout }.run(here, there)?;
            Caller::as_owner(|_| misplaced_doubt::forget(doubt.run));
        }
        Ok(())
    }

    /// A batch of rows; None: none is left.
    fn work(&self, id: i64, open: &mut Open, lots: &[Lot], place: Place) -> Result<Option<Next>, Failure> {
        let Some(lot) = lots.get(place.lot) else { return Ok(None) };
        if self.action == Action::Delete(Deletes::Conflicting) {
            self.delete_conflicting(id, open, lot)?;
            return Ok(Some(Next::Place(place.next_lot())));
        }
        let Some(unit) = lot.units.get(place.unit) else { return Ok(Some(Next::Place(place.next_lot()))) };
        let Some(keys) = place.keys(lot, unit) else { return Ok(Some(Next::Place(place.next_unit()))) };
        let mut place = place;
        let mut chosen = None;
        if !unit.is_whole && !place.is_last() {
            let pair = &lot.pairs[unit.tables[0]];
            if !place.is_listed {
                chosen::list(&mut open.here, pair, keys, self.timeout)?;
                place = place.listed();
            }
            chosen = chosen::next(&mut open.here, &lot.keys, self.timeout)?;
            if chosen.is_none() {
                // Where there were none, that is told as well.
                Caller::as_owner(|_| misplaced_run::count(id, &pair.name, 0, 0));
                let left = is_left(lot, unit, keys, &mut open.here, self.timeout)?;
                return Ok(Some(Next::Place(place.after_all(left))));
            }
        }
        let of = match &chosen {
            Some(chosen) => Of::Listed(chosen),
            None if place.is_last() => Of::AllAlone,
            None => Of::All,
        };
        let keys = chosen.as_ref().map_or(keys, |chosen| chosen.keys.as_slice());
        let batch = Batch { lot, unit, keys, of, timeout: self.timeout };
        self.batch(id, open, lots, place, &batch).map(Some)
    }

    fn delete_conflicting(&self, id: i64, open: &mut Open, lot: &Lot) -> Result<(), Failure> {
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
        open: &mut Open,
        lots: &[Lot],
        place: Place,
        batch: &Batch<'_>,
    ) -> Result<Next, Failure> {
        let alone_since = matches!(batch.of, Of::AllAlone).then(Instant::now);
        let mut there = self.there(batch.lot, &mut open.there);
        let done = match batch.prepare(&mut open.here, there.as_deref_mut()) {
            Ok(done) => done,
            // Who keeps coming between is kept out in the end.
            Err(Halt::Between(why)) if alone_since.is_none() => {
                batch.undo(&mut open.here, there).map_err(|_| why)?;
                return Ok(Next::Place(place.in_vain()));
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
            return Ok(Next::Commit(place, pending));
        }
        self.commit(id, open, lots, place, &pending).map(Next::Place)
    }

    fn there<'a>(&self, lot: &Lot, there: &'a mut BTreeMap<String, Session>) -> Option<&'a mut Session> {
        lot.target.as_ref().filter(|_| self.action.compares()).and_then(|target| there.get_mut(target))
    }

    /// And where it goes on.
    fn commit(
        &self,
        id: i64,
        open: &mut Open,
        lots: &[Lot],
        place: Place,
        pending: &Pending,
    ) -> Result<Place, Failure> {
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
    here: &mut Session,
    timeout: Duration,
) -> Result<bool, Failure> {
    here.patient_for(timeout);
    let batch = Batch { lot, unit, keys, of: Of::All, timeout };
    Ok(batch.is_left(here)?.is_some())
}

/// Clients of other keys have waited as well.
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

/// What splits have left at the wrong shard to redirect clients refuses whoever writes to rows of keys that have left it. By which
/// of them it is, only a deletion tells, of one row of each key and table, which is undone.
fn require_no_redirect(lot: &Lot, here: &mut Session, splits: &[i64]) -> Result<(), Failure> {
    for pair in &lot.pairs {
        for key in &lot.keys {
            let delete = statements::delete_one(pair, key);
            let begin = "BEGIN; SET LOCAL lock_timeout = '1s'";
            let tried = here.connection.run(&format!("{begin}; {}; {delete}", here.as_application()));
            match tried {
                Ok(_) => here.roll_back()?,
                // Rows that refer to it are in its way, and in that of nobody who moves them all.
                Err(error) if error.sqlstate.is_some_and(|state| state.as_str().starts_with("23")) => {
                    here.roll_back()?;
                }
                Err(error) if error.is("SM001") => {
                    let splits: Vec<String> = splits.iter().map(i64::to_string).collect();
                    let (key, shard, splits) = (key.clone(), here.shard.shard_key.clone(), splits.join(", "));
                    return Err(MisplacedError::Redirected { key, shard, splits }.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Sends all rows of the keys to the right shard's stages, where they are looked at.
fn on_both(
    lot: &Lot,
    here: &mut Session,
    there: &mut Session,
    timeout: Duration,
    look: impl Fn(&Pair, &mut Session, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let shard = here.shard.shard_key.clone();
    for pair in &lot.pairs {
        here.patient_for(timeout);
        there.patient_for(timeout);
        here.connection.run(&format!("BEGIN READ ONLY; {}", here.as_application()))?;
        there.connection.run(&format!("BEGIN; {}", there.as_application()))?;
        batch::make_stage(there, pair)?;
        let (out, into) = (statements::read(pair, &lot.keys), statements::fill_stage(pair));
        copy::pipe(&mut here.connection, &out, &mut there.connection, &into, Bounds::unlimited())
            .map_err(|error| error.of_table(&pair.name))?;
        look(pair, there, &shard)?;
        here.roll_back()?;
        there.roll_back()?;
    }
    Ok(())
}
