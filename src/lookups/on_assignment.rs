//! Keys that were assigned, moved, or unassigned: their rows may have been written to their present shard before,
//! without a route, or to their earlier shard before it was read.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup as agent;
use crate::catalog::lookup::{self, Lookup, LookupSource};
use crate::catalog::lookup_entry::{self, LookupPair};
use crate::catalog::{keyspace, routing, shard};
use crate::error::Failure;
use crate::guc;
use crate::lookups::fill::FillStream;
use crate::lookups::session::LookupSessions;
use crate::lookups::settle::{self, BATCH};
use crate::server::txn::transaction;
use std::collections::BTreeSet;
use std::time::Instant;

/// The number of keys at a time.
const MOST: i64 = 500;

/// The number of errors after which this is left to fills and sweeps.
const ATTEMPTS: u32 = 4;

/// The position in the master's own pairs: an owner, and one of its keys.
#[derive(Clone, Default)]
struct Own {
    owner: usize,
    key: Option<String>,
}

impl Own {
    /// Returns the next pairs; none are left if it is empty.
    fn page(&mut self, lookup: &Lookup, owners: &[String]) -> BTreeSet<LookupPair> {
        let mut page = BTreeSet::new();
        while let Some(owner) = owners.get(self.owner).filter(|_| page.len() < BATCH) {
            let most = BATCH - page.len();
            let keys = lookup_entry::of_owner(&lookup.name, owner, self.key.as_deref(), most as i64);
            if keys.len() < most {
                (self.owner, self.key) = (self.owner + 1, None);
            } else {
                self.key = keys.last().cloned();
            }
            page.extend(keys.into_iter().map(|key| LookupPair { key, owner: owner.clone() }));
        }
        page
    }
}

/// Some keys, and the progress with them.
#[derive(Default)]
pub struct Assigned {
    ids: Vec<i64>,
    owners: Vec<String>,
    /// The progress with the master's own pairs. `None` once it is complete.
    own: Option<Own>,
    /// The shards where their rows must be searched.
    shards: Vec<String>,
    stream: Option<Box<FillStream>>,
    errors: u32,
}

impl Assigned {
    /// Returns the next ones. Returns None if there are none, or the keyspace's entries are no keys: then shards fill
    /// again.
    pub fn next(lookup: &Lookup) -> Result<Option<Assigned>> {
        let found = transaction(|| {
            let keyspace = keyspace::find(&lookup.of).ok()?;
            let (ids, entries): (Vec<i64>, Vec<String>) =
                lookup::assigned(&lookup.name, MOST).into_iter().unzip();
            let owners: BTreeSet<String> = entries.into_iter().collect();
            let owners: Vec<String> = owners.into_iter().collect();
            if ids.is_empty() || !keyspace.strategy.is_directory() {
                return Some(Assigned { ids, owners, ..Assigned::default() });
            }
            let places = routing::places(&keyspace, &owners);
            let shards: BTreeSet<String> = places.into_values().map(|place| place.shard).collect();
            let shards = shards.into_iter().collect();
            Some(Assigned { ids, owners, shards, own: Some(Own::default()), ..Assigned::default() })
        });
        let Some(found) = found.filter(|found| !found.ids.is_empty()) else { return Ok(None) };
        if found.own.is_some() {
            return Ok(Some(found));
        }
        settle::commit(lookup, || {
            lookup::fill_again(lookup, &found.owners);
            lookup::assignments_done(&found.ids);
        })?;
        Ok(None)
    }

    /// Settles some pairs. Returns false once it is complete.
    pub fn step(
        &mut self,
        sessions: &mut LookupSessions,
        lookup: &Lookup,
        source: &LookupSource,
    ) -> Result<bool> {
        match self.try_step(sessions, lookup, source) {
            Err(error) if self.errors < ATTEMPTS => {
                self.errors += 1;
                Err(error)
            }
            Err(error) => {
                pgrx::log!("lookup index \"{}\": {}", lookup.name, error.into_failure().cleaned());
                self.leave(lookup)?;
                Ok(false)
            }
            done => done,
        }
    }

    /// Leaves the keys of a shard that cannot be asked, so that others do not wait for it: its rows are read once it
    /// is reachable again.
    fn leave(&self, lookup: &Lookup) -> Result<()> {
        settle::commit(lookup, || {
            lookup::next_epoch_if_any(lookup);
            lookup::fill_again(lookup, &self.owners);
            lookup::assignments_done(&self.ids);
        })
    }

    fn try_step(
        &mut self,
        sessions: &mut LookupSessions,
        lookup: &Lookup,
        source: &LookupSource,
    ) -> Result<bool> {
        if let Some(own) = &self.own {
            let mut next = own.clone();
            let page = transaction(|| next.page(lookup, &self.owners));
            let is_last = page.is_empty();
            // What another session has locked is recorded, and others do not wait for it.
            if !settle::settle_unlocked(sessions, lookup, page, None)?.is_empty() {
                settle::commit(lookup, || lookup::next_epoch_if_any(lookup))?;
            }
            self.own = (!is_last).then_some(next);
            return Ok(true);
        }
        if let Some(stream) = &mut self.stream {
            let began = Instant::now();
            match stream.step(sessions, lookup) {
                Ok(true) => {}
                Ok(false) => self.stream = None,
                // There were too few matching rows among too many: all of them are read, so that it answers in
                // between.
                Err(SplitError::Remote(_)) if began.elapsed() >= guc::remote_timeout() => {
                    let shards = BTreeSet::from([stream.shard().to_owned()]);
                    settle::commit(lookup, || lookup::look_anew(lookup, &shards))?;
                    self.stream = None;
                }
                Err(error) => {
                    if !matches!(error, SplitError::Retry(_)) {
                        self.shards.push(stream.shard().to_owned());
                        self.stream = None;
                    }
                    return Err(error);
                }
            }
            return Ok(true);
        }
        let Some(shard_key) = self.shards.last() else {
            settle::commit(lookup, || lookup::assignments_done(&self.ids))?;
            return Ok(false);
        };
        let shard = transaction(|| shard::by_key(shard_key)).map_err(Failure::from)?;
        let connection = sessions.of(&shard)?;
        // If nothing is captured yet the fill finds them.
        if let Some(capture) = agent::find(connection, &source.token, &shard.namespace)? {
            let watched = source.on(&shard);
            let stream = FillStream::open(sessions, &shard, &watched, capture, Some(&self.owners))?;
            self.stream = stream.map(Box::new);
        }
        self.shards.pop();
        Ok(true)
    }
}
