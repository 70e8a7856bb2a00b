//! A run, step by step, each of which is committed on the master before the next one begins.

use super::batch::{self, Batch, Done, MOST, reach};
use super::doubt::{self, Settling};
use super::error::MisplacedError;
use super::leftover;
use super::lot::{Lot, Wish};
use super::master;
use super::points::BEGUN;
use super::session::Session;
use super::statements;
use crate::catalog::caller::Caller;
use crate::catalog::misplaced_doubt;
use crate::catalog::misplaced_run::{self, Action, End, Key};
use crate::catalog::table_policy::TablePolicy;
use crate::catalog::{execution, redirect};
use crate::error::Failure;
use crate::query::run::schemas_of;
use crate::remote::copy::{self, Bounds};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often nothing is deleted of rows that are there, before somebody else is to see why.
const TRIES: u32 = 5;

/// How many more batches than the rows make that were there at first: what puts rows back as fast as they go would never end.
const MORE: u64 = 1000;

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
    Prepared(Open, Vec<Lot>, Place, Vec<(usize, Done)>),
}

pub struct Open {
    here: Session,
    /// By shard.
    there: BTreeMap<String, Session>,
}

/// What is next: of which lot, unit and keys, and how often it was in vain.
#[derive(Clone, Copy, Default)]
pub struct Place {
    lot: usize,
    unit: usize,
    key: usize,
    tries: u32,
    /// How many batches it may still take; None: it has not begun.
    left: Option<u64>,
}

enum Next {
    Place(Place),
    Commit(Place, Vec<(usize, Done)>),
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
                    Some(Next::Commit(place, done)) => Stage::Prepared(open, lots, place, done),
                };
            }
            Stage::Prepared(mut open, lots, place, done) => {
                let place = self.commit(id, &mut open, &lots, place, &done)?;
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
        let mut there = BTreeMap::new();
        for shard in self.keys.iter().filter_map(|key| key.routed_to.as_ref()) {
            if !there.contains_key(shard) {
                there.insert(shard.clone(), open(shard)?);
            }
        }
        Ok(Open { here, there })
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
            let lot = Lot::prepare(&wish, keys, &mut open.here, there.as_deref_mut())?;
            if let (Action::Move, Some(there)) = (self.action, there) {
                require_no_conflicts(&lot, &mut open.here, there, self.timeout)?;
            }
            lots.push(lot);
        }
        for lot in &lots {
            if let (Some(target), Some(there)) = (&lot.target, self.there(lot, &mut open.there)) {
                self.settle(lot, target, &mut open.here, there)?;
            }
        }
        let redirects = Caller::as_owner(|_| redirect::splits_of_shard(&self.shard));
        if !redirects.is_empty() {
            open.here.patient_for(self.timeout);
            lots.iter().try_for_each(|lot| require_no_redirect(lot, &mut open.here, &redirects))?;
        }
        Ok((open, lots))
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
        let Some(unit) = lot.units.get(place.unit) else {
            return Ok(Some(Next::Place(Place { lot: place.lot + 1, ..Place::default() })));
        };
        let keys =
            if unit.is_whole { lot.keys.get(place.key..=place.key) } else { Some(lot.keys.as_slice()) };
        let Some(keys) = keys.filter(|_| unit.is_whole || place.key == 0) else {
            return Ok(Some(Next::Place(Place { lot: place.lot, unit: place.unit + 1, ..Place::default() })));
        };
        let mut there = self.there(lot, &mut open.there);
        let batch = Batch { lot, unit, keys, timeout: self.timeout };
        let left = match place.left {
            Some(left) => left,
            None => {
                open.here.patient_for(self.timeout);
                2 * (batch.rows(&mut open.here)? / u64::from(MOST)) + MORE
            }
        };
        let done = batch.prepare(&mut open.here, there.as_deref_mut())?;
        let place = Place { left: Some(left), ..place };
        if let (Some(there), Some(target)) = (there, &lot.target)
            && done.iter().any(|(_, done)| done.moved > 0)
        {
            let arrived = doubt::transaction(there)?;
            Caller::as_owner(|_| {
                for (position, done) in &done {
                    misplaced_doubt::insert(id, target, &arrived, &lot.pairs[*position].name, done.moved);
                }
            });
            return Ok(Some(Next::Commit(place, done)));
        }
        self.commit(id, open, lots, place, &done).map(|place| Some(Next::Place(place)))
    }

    fn there<'a>(&self, lot: &Lot, there: &'a mut BTreeMap<String, Session>) -> Option<&'a mut Session> {
        match self.action {
            Action::Move => lot.target.as_ref().and_then(|target| there.get_mut(target)),
            Action::Delete => None,
        }
    }

    /// And where it goes on.
    fn commit(
        &self,
        id: i64,
        open: &mut Open,
        lots: &[Lot],
        place: Place,
        done: &[(usize, Done)],
    ) -> Result<Place, Failure> {
        let lot = &lots[place.lot];
        let unit = &lot.units[place.unit];
        let keys = if unit.is_whole { &lot.keys[place.key..=place.key] } else { lot.keys.as_slice() };
        let batch = Batch { lot, unit, keys, timeout: self.timeout };
        batch.commit(&mut open.here, self.there(lot, &mut open.there))?;
        Caller::as_owner(|_| {
            misplaced_doubt::forget(id);
            for (position, done) in done {
                misplaced_run::count(id, &lot.pairs[*position].name, done.moved, done.deleted);
            }
        });
        let left = place.left.unwrap_or_default();
        if left > 0 && done.iter().any(|(_, done)| done.moved + done.deleted > 0) {
            return Ok(Place { tries: 0, left: Some(left - 1), ..place });
        }
        match batch.is_left(&mut open.here)? {
            None => Ok(Place { key: place.key + 1, tries: 0, left: None, ..place }),
            Some(_) if left > 0 && place.tries < TRIES => Ok(Place { tries: place.tries + 1, ..place }),
            Some(table) => {
                let shard = self.shard.clone();
                Err(MisplacedError::Stays { table, shard }.into())
            }
        }
    }
}

/// What splits have left at the wrong shard to redirect clients refuses whoever writes to rows of keys that have left it. By which
/// of them it is, only a deletion tells, of one row of each key and table, which is undone.
fn require_no_redirect(lot: &Lot, here: &mut Session, splits: &[i64]) -> Result<(), Failure> {
    for pair in &lot.pairs {
        for key in &lot.keys {
            let delete = statements::delete(pair, std::slice::from_ref(key), Some(1));
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

/// Rows of one primary key on both shards that differ are found before the first one is moved.
fn require_no_conflicts(
    lot: &Lot,
    here: &mut Session,
    there: &mut Session,
    timeout: Duration,
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
        batch::require_no_conflict(pair, &lot.keys, there, &shard)?;
        here.roll_back()?;
        there.roll_back()?;
    }
    Ok(())
}
