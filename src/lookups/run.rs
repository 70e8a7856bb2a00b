//! What the worker does, turn by turn: each lookup index on each shard gets its turn, so that none waits for another's
//! end.

use super::removal;
use super::session::LookupSessions;
use super::settle::{self, BATCH};
use crate::agent::error::{Result, SplitError};
use crate::catalog::lookup::{self, Lookup, LookupProgress, LookupSource, LookupState, Removal};
use crate::catalog::lookup_entry::{self, LookupPair};
use crate::catalog::shard::{self, Shard};
use crate::catalog::split;
use crate::lookups::on_assignment::Assigned;
use crate::lookups::replicate::{Post, PostWork};
use crate::server::retry::Backoff;
use crate::server::txn::{transaction, with_lock_timeout};
use crate::server::wait;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::{Duration, Instant};

pub use crate::catalog::lookup::has_work;

/// The pause between two checks of a shard that has nothing new; it grows each time.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// The longest pause after an error that may go away without action.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// When something is due again.
struct Due {
    at: Instant,
    pause: Duration,
    errors: Backoff,
}

impl Default for Due {
    fn default() -> Due {
        Due { at: Instant::now(), pause: SHORTEST, errors: Backoff::default() }
    }
}

impl Due {
    fn is_now(&self) -> bool {
        Instant::now() >= self.at
    }

    fn done(&mut self, is_busy: bool) {
        self.errors.succeeded();
        self.pause = if is_busy { Duration::ZERO } else { (self.pause * 2).clamp(SHORTEST, LONGEST) };
        self.at = Instant::now() + self.pause;
    }

    /// Notes an error. One that may go away is tried again soon.
    fn failed_by(&mut self, error: &SplitError) {
        match error {
            SplitError::Retry(_) => self.errors.failed_for(LONGEST_WAIT),
            _ => self.errors.failed(),
        }
        self.at = Instant::now() + self.errors.left().unwrap_or_default();
    }
}

/// The token of its table, and the shard.
type PostName = (String, String);

#[derive(Default)]
struct AtShard {
    post: Post,
    due: Due,
}

#[derive(Default)]
struct OfLookup {
    assigned: Option<Assigned>,
    /// The last checked pair of an earlier epoch.
    swept: Option<LookupPair>,
    /// The last claim that was settled after its lease's end.
    claim: Option<String>,
    due: Due,
}

/// What the worker remembers between its turns.
#[derive(Default)]
pub struct LookupTurns {
    sessions: LookupSessions,
    posts: HashMap<PostName, AtShard>,
    lookups: HashMap<String, OfLookup>,
    removals: HashMap<PostName, Due>,
}

/// The result of reading the catalog once.
struct Catalog {
    identity: String,
    lookups: Vec<(Lookup, LookupSource, Vec<LookupProgress>)>,
    /// Lookup indexes that a shard has no row of.
    incomplete: Vec<String>,
    shards: BTreeMap<String, Shard>,
    removals: Vec<Removal>,
}

fn read() -> Catalog {
    let with_progress = |lookup: Lookup| {
        let source = lookup.source.clone()?;
        let progress = lookup::progress(&lookup.name);
        Some((lookup, source, progress))
    };
    let lookups: Vec<_> = lookup::all().into_iter().filter_map(with_progress).collect();
    let names = lookups.iter().map(|(lookup, ..)| lookup.name.clone());
    Catalog {
        identity: split::identity(),
        incomplete: names.filter(|name| lookup::lacks_shards(name)).collect(),
        lookups,
        shards: shard::all().into_iter().map(|shard| (shard.shard_key.clone(), shard)).collect(),
        removals: lookup::removals(),
    }
}

/// Records what the next turn would record as well: a lock on it is not waited for.
fn note(body: impl FnOnce()) {
    let _: Option<std::result::Result<(), Infallible>> = with_lock_timeout(|| {
        body();
        Ok(())
    });
}

impl LookupTurns {
    /// Takes one turn. Returns how long nothing is due, or None if nothing is left to do, or the catalog does not
    /// exist any more.
    pub fn take(&mut self, catalog_exists: fn() -> bool) -> Option<Duration> {
        let read_it = || transaction(|| catalog_exists().then(read));
        let mut catalog = read_it()?;
        if !catalog.incomplete.is_empty() {
            catalog.incomplete.iter().for_each(|name| note(|| lookup::add_shards(name)));
            catalog = read_it()?;
        }
        if catalog.lookups.is_empty() && catalog.removals.is_empty() {
            return None;
        }
        self.forget(&catalog);
        for removal in &catalog.removals {
            self.remove(&catalog.identity, removal);
        }
        for only_prepare in [true, false] {
            for (lookup, source, progress) in &catalog.lookups {
                for progress in progress {
                    self.serve(&catalog, lookup, source, progress, only_prepare);
                }
            }
        }
        // This includes what the turn has changed.
        for (lookup, source, progress) in read_it()?.lookups {
            self.look_after(&lookup, &source, &progress);
        }
        let dues = self.posts.values().map(|at| &at.due).chain(self.lookups.values().map(|of| &of.due));
        let next = dues.chain(self.removals.values()).map(|due| due.at).min();
        Some(next.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now())).min(LONGEST))
    }

    fn forget(&mut self, catalog: &Catalog) {
        let is_there = |token: &str, shard: &str| {
            catalog.lookups.iter().any(|(_, source, progress)| {
                source.token == token && progress.iter().any(|progress| progress.shard_key == shard)
            })
        };
        self.posts.retain(|(token, shard), _| is_there(token, shard));
        self.lookups.retain(|token, _| catalog.lookups.iter().any(|(_, source, _)| source.token == *token));
        self.removals.retain(|(token, shard), _| {
            catalog.removals.iter().any(|removal| removal.token == *token && removal.shard_key == *shard)
        });
    }

    fn remove(&mut self, identity: &str, removal: &Removal) {
        let name = (removal.token.clone(), removal.shard_key.clone());
        if !self.removals.entry(name.clone()).or_default().is_now() {
            return;
        }
        wait::report(&format!(
            "removing lookup index \"{}\" from shard \"{}\"",
            removal.lookup, removal.shard_key
        ));
        let outcome = removal::remove(&mut self.sessions, identity, removal);
        let due = self.removals.entry(name).or_default();
        match outcome {
            Ok(()) => self.sessions.succeeded(&removal.shard_key),
            Err(error) => {
                if !matches!(error, SplitError::Retry(_)) {
                    self.sessions.failed(&removal.shard_key, &error);
                }
                due.failed_by(&error);
                let failure = error.into_failure();
                note(|| lookup::not_removed(removal, &failure));
            }
        }
    }

    fn serve(
        &mut self,
        catalog: &Catalog,
        lookup: &Lookup,
        source: &LookupSource,
        progress: &LookupProgress,
        only_prepare: bool,
    ) {
        let Some(shard) = catalog.shards.get(&progress.shard_key) else { return };
        let at = self.posts.entry((source.token.clone(), progress.shard_key.clone())).or_default();
        if !at.due.is_now() {
            return;
        }
        wait::report(&format!("lookup index \"{}\" on shard \"{}\"", lookup.name, shard.shard_key));
        // What was prepared before is in the catalog by now.
        let fresh = if only_prepare {
            None
        } else {
            transaction(|| {
                lookup::find(&lookup.name).zip(lookup::progress_of(&lookup.name, &shard.shard_key))
            })
        };
        let (lookup, progress) = fresh.unwrap_or_else(|| (lookup.clone(), progress.clone()));
        let mut work = PostWork {
            sessions: &mut self.sessions,
            identity: &catalog.identity,
            lookup: &lookup,
            source,
            shard,
            progress,
        };
        let outcome = if only_prepare {
            at.post.prepare(&mut work).map(|()| None)
        } else {
            at.post.serve(&mut work).map(Some)
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(turn)) => {
                self.sessions.succeeded(&shard.shard_key);
                at.due.done(turn.is_busy);
                note(|| {
                    lookup::report(
                        &lookup.name,
                        &shard.shard_key,
                        turn.waiting,
                        turn.lag_seconds,
                        turn.waits_for.as_deref(),
                    );
                });
            }
            Err(error) => {
                at.due.failed_by(&error);
                // A transient error costs no fill: each turn checks whether it is still complete.
                if !matches!(error, SplitError::Retry(_)) {
                    at.post.failed();
                    self.sessions.failed(&shard.shard_key, &error);
                }
                let failure = error.into_failure();
                note(|| lookup::report_failure(&lookup.name, &shard.shard_key, &failure));
            }
        }
    }

    /// Does what does not belong to a single shard.
    fn look_after(&mut self, lookup: &Lookup, source: &LookupSource, progress: &[LookupProgress]) {
        let mut of = self.lookups.remove(&source.token).unwrap_or_default();
        if of.due.is_now() {
            match self.settle_more(&mut of, lookup, source, progress) {
                Ok(is_busy) => of.due.done(is_busy),
                Err(error) => {
                    of.due.failed_by(&error);
                    pgrx::log!("lookup index \"{}\": {}", lookup.name, error.into_failure().cleaned());
                }
            }
        }
        self.lookups.insert(source.token.clone(), of);
    }

    /// Ends claims without a row once their shards have been asked; claims of unreachable shards delay no others.
    fn end_claims(&mut self, of: &mut OfLookup, lookup: &Lookup) -> Result<bool> {
        let after = of.claim.take();
        let page = transaction(|| lookup_entry::ended_claims(&lookup.name, after.as_deref(), BATCH as i64));
        if page.is_empty() {
            return Ok(false);
        }
        of.claim = page.last().map(|pair| pair.key.clone());
        let count = page.len();
        let left = settle::settle_claims(&mut self.sessions, lookup, page.into_iter().collect())?;
        Ok(count == BATCH && left.errors.is_empty() && !left.is_locked)
    }

    fn settle_more(
        &mut self,
        of: &mut OfLookup,
        lookup: &Lookup,
        source: &LookupSource,
        progress: &[LookupProgress],
    ) -> Result<bool> {
        let ended = self.end_claims(of, lookup)?;
        if of.assigned.is_none() {
            of.assigned = Assigned::next(lookup)?;
        }
        if let Some(assigned) = &mut of.assigned {
            if !assigned.step(&mut self.sessions, lookup, source)? {
                of.assigned = None;
            }
            return Ok(true);
        }
        let is_filled = progress.iter().all(|progress| progress.state != LookupState::Filling);
        if lookup.epoch == lookup.swept || !is_filled {
            of.swept = None;
            return Ok(ended);
        }
        let page = transaction(|| lookup_entry::older(lookup, of.swept.as_ref(), BATCH as i64));
        let Some(last) = page.last().cloned() else {
            match of.swept.take() {
                // What was left for later precedes it.
                Some(_) => {}
                None => settle::commit(lookup, || lookup::swept(lookup, lookup.epoch))?,
            }
            return Ok(true);
        };
        // Pairs that cannot be asked for now are tried again later, and the others do not wait for them.
        let left = settle::settle(&mut self.sessions, lookup, &page.into_iter().collect(), None)?;
        of.swept = Some(last);
        Ok(left.errors.is_empty() && !left.is_locked)
    }
}
