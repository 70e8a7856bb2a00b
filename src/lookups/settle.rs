//! Settling of pairs: whether their owners' shards have a row with them, so that the master records the same.

use super::points;
use super::session::LookupSessions;
use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::WatchedColumn;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::lookup::{self, Lookup, LookupSource};
use crate::catalog::lookup_entry::{self, LookupPair};
use crate::catalog::routing::{self, RoutingPlace};
use crate::catalog::shard::{self, Shard, ShardStatus};
use crate::error::Failure;
use crate::lookups::validate::ask;
use crate::server::injection::reach;
use crate::server::txn::{self, LockTimeout, transaction};
use crate::server::{sql, standby};
use pgrx::datum::TimestampWithTimeZone;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The number of pairs that are settled at once.
pub const BATCH: usize = 1000;
/// The greatest number of bytes of a key or an owner: a longer one is in no index, and so in no lookup index.
pub const LONGEST: usize = 1000;

impl LookupSource {
    pub fn on(&self, shard: &Shard) -> WatchedColumn {
        WatchedColumn {
            schema: self.table.schema.clone().unwrap_or_else(|| shard.namespace.clone()),
            table: self.table.name.clone(),
            column: self.column.clone(),
            shard_by: self.shard_by.clone(),
        }
    }
}

/// Returns a pair as a shard writes it, in its canonical form. Returns None if it could not be routed.
pub fn canonical(lookup: &Lookup, key: Option<&str>, owner: Option<&str>) -> Option<LookupPair> {
    let key = lookup.key_type.of_value(key?)?.into_owned();
    let owner = lookup.owner_type.of_value(owner?)?.into_owned();
    (key.len() <= LONGEST && owner.len() <= LONGEST).then_some(LookupPair { key, owner })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PairSaid {
    HasRow,
    HasNone,
    /// Nothing: another shard has the owner's rows, and determines itself what becomes of them.
    Nothing,
}

/// The answer of a shard about a pair.
struct PairAnswer {
    /// The place where it was asked. `None` if the owner is not routed.
    place: Option<RoutingPlace>,
    said: PairSaid,
}

/// A shard that could not be asked, and why.
pub type Unasked = (String, Failure);

/// Pairs with the answers of their shards.
pub struct LookedPairs {
    /// The time before which no shard was asked.
    asked: TimestampWithTimeZone,
    answers: BTreeMap<LookupPair, PairAnswer>,
    /// Shards without the table.
    bare: BTreeSet<String>,
    /// Why some could not be asked.
    pub errors: Vec<Unasked>,
}

fn places(
    lookup: &Lookup,
    pairs: &BTreeSet<LookupPair>,
) -> Option<(Keyspace, HashMap<String, RoutingPlace>)> {
    let owners: BTreeSet<&str> = pairs.iter().map(|pair| pair.owner.as_str()).collect();
    let owners: Vec<String> = owners.into_iter().map(str::to_owned).collect();
    let keyspace = keyspace::find(&lookup.of).ok()?;
    let places = routing::places(&keyspace, &owners);
    Some((keyspace, places))
}

/// Asks the shards that have the owners' rows, or only the shard that the pairs come from. What was seen on a shard
/// survives its crash.
pub fn look(
    sessions: &mut LookupSessions,
    lookup: &Lookup,
    pairs: &BTreeSet<LookupPair>,
    only: Option<&str>,
) -> Result<LookedPairs> {
    let asked = transaction(|| sql::read_one("SELECT clock_timestamp()", &[], |row| row.value(1)));
    let asked = asked.ok_or_else(|| SplitError::Retry("the time".into()))?;
    let mut looked =
        LookedPairs { asked, answers: BTreeMap::new(), bare: BTreeSet::new(), errors: Vec::new() };
    let (Some(source), false) = (&lookup.source, pairs.is_empty()) else { return Ok(looked) };
    let Some((_, places)) = transaction(|| places(lookup, pairs)) else { return Ok(looked) };
    let mut by_shard: BTreeMap<&str, Vec<&LookupPair>> = BTreeMap::new();
    for pair in pairs {
        let (place, said) = match places.get(&pair.owner) {
            Some(place) if only.is_some_and(|shard| shard != place.shard) => (Some(place), PairSaid::Nothing),
            Some(place) => {
                by_shard.entry(place.shard.as_str()).or_default().push(pair);
                continue;
            }
            None => (None, PairSaid::HasNone),
        };
        looked.answers.insert(pair.clone(), PairAnswer { place: place.cloned(), said });
    }
    for (shard_key, pairs) in by_shard {
        match ask(sessions, source, shard_key, &pairs) {
            Ok(found) => {
                let found = found.unwrap_or_else(|| {
                    looked.bare.insert(shard_key.to_owned());
                    vec![false; pairs.len()]
                });
                for (pair, has_row) in pairs.into_iter().zip(found) {
                    let place = places.get(&pair.owner).cloned();
                    let said = if has_row { PairSaid::HasRow } else { PairSaid::HasNone };
                    looked.answers.insert(pair.clone(), PairAnswer { place, said });
                }
            }
            Err(error) => {
                if !matches!(error, SplitError::Retry(_)) {
                    sessions.failed(shard_key, &error);
                }
                looked.errors.push((shard_key.to_owned(), error.into_failure()));
            }
        }
    }
    reach(points::LOOKED)?;
    Ok(looked)
}

/// Records the answers about these pairs, in a transaction. Returns those that were recorded; the others are left for
/// later.
fn apply(lookup: &Lookup, looked: &LookedPairs, pairs: &[&LookupPair]) -> BTreeSet<LookupPair> {
    let pairs: BTreeSet<LookupPair> = pairs.iter().copied().cloned().collect();
    let Some((_, places)) = places(lookup, &pairs) else { return BTreeSet::new() };
    // If it has moved meanwhile another shard must be asked.
    let is_there = |pair: &LookupPair, answer: &PairAnswer| places.get(&pair.owner) == answer.place.as_ref();
    let valid: Vec<(&LookupPair, PairSaid)> = pairs
        .iter()
        .filter_map(|pair| looked.answers.get(pair).map(|answer| (pair, answer)))
        .filter(|(pair, answer)| is_there(pair, answer))
        .map(|(pair, answer)| (pair, answer.said))
        .collect();
    let of = |wanted: PairSaid| valid.iter().filter(move |(_, said)| *said == wanted).map(|(pair, _)| *pair);
    let gone: Vec<&LookupPair> = of(PairSaid::HasNone).collect();
    let there: BTreeSet<&LookupPair> = of(PairSaid::HasRow).collect();
    // Keys are taken from their old owners first, then given to the new ones.
    lookup_entry::unset(lookup, &gone, looked.asked);
    lookup_entry::set(lookup, &there);
    lookup_entry::looked_at(lookup, &gone);
    // The table may return with all its rows, without a trigger noticing it.
    if !looked.bare.is_empty() {
        lookup::look_anew(lookup, &looked.bare);
    }
    valid.into_iter().map(|(pair, _)| pair.clone()).collect()
}

/// What could be recorded.
pub struct Written {
    pub done: BTreeSet<LookupPair>,
    /// Some of the rest belong to keys that another session has locked.
    pub is_locked: bool,
}

/// How long this tries to separate locked keys from others.
const PARTING: Duration = Duration::from_secs(1);

/// Records the answers, and more with them. A key that another session has locked, by a claim that is not committed
/// yet, delays no other one: they are separated by halving.
pub fn write(lookup: &Lookup, looked: &LookedPairs, more: impl Fn()) -> Result<Written> {
    let all: Vec<&LookupPair> = looked.answers.keys().collect();
    let at_once = commit_within(txn::SOON, lookup, || {
        more();
        apply(lookup, looked, &all)
    });
    if let Some(done) = at_once {
        return Ok(Written { done: done?, is_locked: false });
    }
    let until = Instant::now() + PARTING;
    let mut done = BTreeSet::new();
    let mut parts = vec![all.as_slice()];
    while let Some(part) = parts.pop().filter(|_| Instant::now() < until) {
        let (first, second) = part.split_at(part.len() / 2);
        for half in [first, second].into_iter().filter(|half| !half.is_empty()) {
            match commit_within(txn::AT_ONCE, lookup, || apply(lookup, looked, half)) {
                Some(written) => done.extend(written?),
                None if half.len() > 1 => parts.push(half),
                None => {}
            }
        }
    }
    commit(lookup, more)?;
    Ok(Written { done, is_locked: true })
}

/// What a key waits for that cannot be recorded.
pub const LOCKED: &str = "a lock on a key of the lookup index";

/// Commits what the body records, unless another session has locked what it needs, or the lookup index is another one
/// by now.
pub fn commit<R>(lookup: &Lookup, body: impl FnOnce() -> R) -> Result<R> {
    commit_within(txn::SOON, lookup, body).unwrap_or_else(|| Err(SplitError::Retry(LOCKED.into())))
}

/// Commits it, or returns None if it is locked.
fn commit_within<R>(longest: LockTimeout, lookup: &Lookup, body: impl FnOnce() -> R) -> Option<Result<R>> {
    txn::within(longest, || {
        // It is removed from queues next, so it must survive a crash.
        standby::commit_durably();
        if lookup::hold(lookup) { Ok(body()) } else { Err(gone(lookup)) }
    })
}

/// Returns the error; the next turn reads what the lookup index is by then.
fn gone(lookup: &Lookup) -> SplitError {
    SplitError::Retry(format!("lookup index \"{}\", which has changed", lookup.name))
}

/// Pairs that are left for later, and why.
pub struct PostponedPairs {
    pub pairs: BTreeSet<LookupPair>,
    pub errors: Vec<Unasked>,
    pub is_locked: bool,
}

/// Settles pairs that no queue has; `only` as in `look`.
pub fn settle(
    sessions: &mut LookupSessions,
    lookup: &Lookup,
    pairs: &BTreeSet<LookupPair>,
    only: Option<&str>,
) -> Result<PostponedPairs> {
    let looked = look(sessions, lookup, pairs, only)?;
    let written = if looked.answers.is_empty() {
        Written { done: BTreeSet::new(), is_locked: false }
    } else {
        write(lookup, &looked, || ())?
    };
    let pairs = pairs.difference(&written.done).cloned().collect();
    Ok(PostponedPairs { pairs, errors: looked.errors, is_locked: written.is_locked })
}

/// Settles claims whose leases have ended. Writes on a disabled shard are not followed, so its claims wait for it.
pub fn settle_claims(
    sessions: &mut LookupSessions,
    lookup: &Lookup,
    claims: BTreeSet<LookupPair>,
) -> Result<PostponedPairs> {
    let asked = transaction(|| {
        let is_disabled = |shard: &Shard| shard.status == ShardStatus::Disabled;
        let disabled: BTreeSet<String> =
            shard::all().into_iter().filter(is_disabled).map(|shard| shard.shard_key).collect();
        let places = places(lookup, &claims).map(|(_, places)| places).unwrap_or_default();
        let waits =
            |pair: &LookupPair| places.get(&pair.owner).is_some_and(|place| disabled.contains(&place.shard));
        claims.into_iter().filter(|pair| !waits(pair)).collect()
    });
    settle(sessions, lookup, &asked, None)
}

/// Settles pairs, and again those that move meanwhile; locked ones are left. It is an error if not all others could be
/// settled.
pub fn settle_unlocked(
    sessions: &mut LookupSessions,
    lookup: &Lookup,
    pairs: BTreeSet<LookupPair>,
    only: Option<&str>,
) -> Result<BTreeSet<LookupPair>> {
    const TIMES: usize = 5;
    let mut left = pairs;
    for _ in 0..TIMES {
        if left.is_empty() {
            return Ok(left);
        }
        let found = settle(sessions, lookup, &left, only)?;
        if let Some((shard, failure)) = found.errors.into_iter().next() {
            return Err(SplitError::Retry(format!("shard \"{shard}\": {failure}")));
        }
        left = found.pairs;
        if found.is_locked {
            return Ok(left);
        }
    }
    if left.is_empty() { Ok(left) } else { Err(SplitError::Retry("routes that keep changing".into())) }
}

/// Returns an error that waits for the sessions that have locked these.
pub fn require_none(locked: &BTreeSet<LookupPair>) -> Result<()> {
    if locked.is_empty() { Ok(()) } else { Err(SplitError::Retry(LOCKED.into())) }
}
