//! Settles pairs: whether their owners' shards have a row with them, as the master then has it.

use super::ask::ask;
use super::points;
use super::session::Sessions;
use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::Watched;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::lookup::{self, Lookup, Source};
use crate::catalog::lookup_entry::{self, Pair};
use crate::catalog::routing::{self, Place};
use crate::catalog::shard::Shard;
use crate::error::Failure;
use crate::server::injection::reach;
use crate::server::txn::{soon, transaction};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pairs that are settled in one go.
pub const BATCH: usize = 1000;
/// Bytes of a key or an owner: a longer one is in no index, so in no look-up.
pub const LONGEST: usize = 1000;

impl Source {
    pub fn on(&self, shard: &Shard) -> Watched {
        Watched {
            schema: self.table.schema.clone().unwrap_or_else(|| shard.namespace.clone()),
            table: self.table.name.clone(),
            column: self.column.clone(),
            shard_by: self.shard_by.clone(),
        }
    }
}

/// A pair as a shard writes it, in its canonical form; None: it is none that could be routed.
pub fn canonical(lookup: &Lookup, key: Option<&str>, owner: Option<&str>) -> Option<Pair> {
    let key = lookup.key_type.of_value(key?)?.into_owned();
    let owner = lookup.owner_type.of_value(owner?)?.into_owned();
    (key.len() <= LONGEST && owner.len() <= LONGEST).then_some(Pair { key, owner })
}

/// What a shard has said of a pair.
struct Answer {
    /// Where it was asked; None: the owner is routed nowhere.
    place: Option<Place>,
    has_row: bool,
}

/// A shard that could not be asked, and why.
pub type Unasked = (String, Failure);

/// Pairs with what their shards have said.
pub struct Looked {
    answers: BTreeMap<Pair, Answer>,
    /// Shards without the table.
    bare: BTreeSet<String>,
    /// What kept some from being asked.
    pub errors: Vec<Unasked>,
}

fn places(lookup: &Lookup, pairs: &BTreeSet<Pair>) -> Option<(Keyspace, HashMap<String, Place>)> {
    let owners: BTreeSet<&str> = pairs.iter().map(|pair| pair.owner.as_str()).collect();
    let owners: Vec<String> = owners.into_iter().map(str::to_owned).collect();
    let keyspace = keyspace::find(&lookup.of).ok()?;
    let places = routing::places(&keyspace, &owners);
    Some((keyspace, places))
}

/// Asks the shards. What is asked of a shard, and was seen there, outlives its crash.
pub fn look(sessions: &mut Sessions, lookup: &Lookup, pairs: &BTreeSet<Pair>) -> Result<Looked> {
    let mut looked = Looked { answers: BTreeMap::new(), bare: BTreeSet::new(), errors: Vec::new() };
    let (Some(source), false) = (&lookup.source, pairs.is_empty()) else { return Ok(looked) };
    let Some((_, places)) = transaction(|| places(lookup, pairs)) else { return Ok(looked) };
    let mut by_shard: BTreeMap<&str, Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        match places.get(&pair.owner) {
            Some(place) => by_shard.entry(place.shard.as_str()).or_default().push(pair),
            None => {
                looked.answers.insert(pair.clone(), Answer { place: None, has_row: false });
            }
        }
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
                    looked.answers.insert(pair.clone(), Answer { place, has_row });
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
    reach(&points::LOOKED)?;
    Ok(looked)
}

/// Writes down what shards have said, in a transaction; those of which nothing could be written are left for later.
pub fn apply(lookup: &Lookup, looked: &Looked) -> BTreeSet<Pair> {
    let pairs: BTreeSet<Pair> = looked.answers.keys().cloned().collect();
    let Some((_, places)) = places(lookup, &pairs) else { return BTreeSet::new() };
    // Where it has moved meanwhile another shard is to be asked.
    let is_there = |pair: &Pair, answer: &Answer| places.get(&pair.owner) == answer.place.as_ref();
    let valid: Vec<(&Pair, bool)> = looked
        .answers
        .iter()
        .filter(|(pair, answer)| is_there(pair, answer))
        .map(|(pair, answer)| (pair, answer.has_row))
        .collect();
    let gone: Vec<&Pair> = valid.iter().filter(|(_, has_row)| !has_row).map(|(pair, _)| *pair).collect();
    let there: BTreeSet<&Pair> =
        valid.iter().filter(|(_, has_row)| *has_row).map(|(pair, _)| *pair).collect();
    // First who gives a key away, then who has it from now on.
    lookup_entry::unset(lookup, &gone);
    lookup_entry::set(lookup, &there);
    lookup_entry::looked_at(lookup, &gone);
    // The table may come back with all its rows, and no trigger would tell.
    if !looked.bare.is_empty() {
        lookup::look_anew(lookup, &looked.bare);
    }
    valid.into_iter().map(|(pair, _)| pair.clone()).collect()
}

/// Commits what the body writes down, unless somebody has locked what it needs, or the look-up is another one by now.
pub fn commit<R>(lookup: &Lookup, body: impl FnOnce() -> R) -> Result<R> {
    let done = soon(|| {
        // It is taken out of queues next: it outlives a crash.
        crate::server::sql::write(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
            &[],
        );
        match lookup::hold(lookup) {
            true => Ok(body()),
            false => Err(gone(lookup)),
        }
    });
    done.unwrap_or_else(|| Err(SplitError::Retry("whoever has locked a key of the look-up".into())))
}

/// The next turn sees what it is by then.
fn gone(lookup: &Lookup) -> SplitError {
    SplitError::Retry(format!("look-up \"{}\", which has changed", lookup.name))
}

/// Settles pairs that no queue has; those that are left for later, and why.
pub fn settle(
    sessions: &mut Sessions,
    lookup: &Lookup,
    pairs: &BTreeSet<Pair>,
) -> Result<(BTreeSet<Pair>, Vec<Unasked>)> {
    let looked = look(sessions, lookup, pairs)?;
    let done = match looked.answers.is_empty() {
        true => BTreeSet::new(),
        false => commit(lookup, || apply(lookup, &looked))?,
    };
    Ok((pairs.difference(&done).cloned().collect(), looked.errors))
}

/// Settles pairs, those that move meanwhile again. An error: not all could be.
pub fn settle_all(sessions: &mut Sessions, lookup: &Lookup, pairs: BTreeSet<Pair>) -> Result<()> {
    const TIMES: usize = 5;
    let mut left = pairs;
    for _ in 0..TIMES {
        if left.is_empty() {
            return Ok(());
        }
        let (later, errors) = settle(sessions, lookup, &left)?;
        if let Some((shard, failure)) = errors.into_iter().next() {
            return Err(SplitError::Retry(format!("shard \"{shard}\": {failure}")));
        }
        left = later;
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(SplitError::Retry("routes that change all the time".into())),
    }
}
