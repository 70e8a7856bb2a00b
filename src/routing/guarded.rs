//! Shards that refuse rows of keys which they never had are told of a key before a route leads
//! there: what is refused wrongly would be locked out. In the caller's open transaction, with the
//! keyspace locked. A shard that has been told and gets nothing after all lets in a key too many,
//! which does no harm.

use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::{master, standing};
use crate::catalog::keyspace::Locked;
use crate::catalog::shard::{self, Shard};
use crate::catalog::{routing, split, standing_guard};
use crate::error::Failure;
use crate::guc;
use crate::keys::interval::Interval;
use crate::remote::quote::literal;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// For each shard: nobody else routes in the keyspace meanwhile, and a cutover waits. More for
/// entries without number.
const PATIENCE: Duration = Duration::from_secs(10);
const FOR_EACH_ENTRY: Duration = Duration::from_millis(1);

/// Entries come to shards, in the same order, in the place of `old` ones.
pub fn admit(
    keyspace: &Locked,
    old: &[String],
    (names, shards): (&[String], &[String]),
) -> std::result::Result<(), Failure> {
    let guarded = standing_guard::of_keyspace(&keyspace.name);
    if guarded.is_empty() {
        return Ok(());
    }
    let mut by_shard: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, shard) in names.iter().zip(shards) {
        by_shard.entry(shard).or_default().push(name.clone());
    }
    let before = match keyspace.strategy.order() {
        Some(_) => routing::current(&keyspace.name, old),
        None => HashMap::new(),
    };
    for (shard_key, names) in by_shard {
        let shard = shard::by_key(shard_key)?;
        let names = gained(keyspace, &before, shard_key, names);
        if names.is_empty() || !standing_guard::any_at(&guarded, &shard) {
            continue;
        }
        tell(&shard, keyspace, &names).map_err(|error| explained(error, &shard, &keyspace.name))?;
    }
    Ok(())
}

/// Without parts of ranges that are the shard's own already: cutting and joining asks nobody.
fn gained(
    keyspace: &Locked,
    before: &HashMap<String, String>,
    shard_key: &str,
    names: Vec<String>,
) -> Vec<String> {
    let Some(of) = keyspace.strategy.order() else { return names };
    let own = before.iter().filter(|(_, shard)| *shard == shard_key);
    let own: Vec<Interval> = own.filter_map(|(name, _)| Interval::parse(name, of)).collect();
    let is_own = |name: &String| {
        let range = Interval::parse(name, of);
        range.is_some_and(|range| range.without_all(&own, of).is_some_and(|left| left.is_empty()))
    };
    names.into_iter().filter(|name| !is_own(name)).collect()
}

fn tell(shard: &Shard, keyspace: &Locked, names: &[String]) -> Result<()> {
    let limit = guc::remote_timeout().min(PATIENCE);
    let entries = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let until = Instant::now() + limit + FOR_EACH_ENTRY * entries;
    let mut session = session::open_within(shard, "assignment", limit)?;
    session.set_deadline(Some(until));
    master::check(&mut session, &split::identity())?;
    let place = [shard.namespace.as_str(), keyspace.name.as_str()];
    standing::tell(&mut session, place, keyspace.strategy, names, keyspace.key_type)
}

fn explained(error: SplitError, shard: &Shard, keyspace: &str) -> Failure {
    let is_away = matches!(&error, SplitError::Remote(error) if error.is_transient());
    let mut failure = error.into_failure();
    failure.message = format!(
        "nothing can be routed to shard \"{}\", whose guard of keyspace \"{keyspace}\" was not told: {}",
        shard.shard_key, failure.message
    );
    if is_away || failure.hint.is_none() {
        failure.hint = Some(format!(
            "Try again once the shard answers. Where it does not come back, CALL shard_guard_remove({}, {}, force => true) gives the guard up; what is left of it there refuses what is new to it until shard_cleanup() has removed it.",
            literal(&shard.shard_key),
            literal(keyspace)
        ));
    }
    failure
}
