//! Shards that refuse rows of keys which they never had are told of a key before a route leads there: otherwise the
//! key would be refused wrongly. This happens in the caller's open transaction, with the keyspace locked. A shard that
//! was told and gets nothing after all admits a key too many, which is harmless.

use crate::agent::error::{Result, SplitError};
use crate::agent::key_guard;
use crate::agent::session;
use crate::agent::state::master;
use crate::catalog::guard_record;
use crate::catalog::guard_record::GuardRecord;
use crate::catalog::keyspace::LockedKeyspace;
use crate::catalog::routing::{self, RoutedEntries};
use crate::catalog::shard::{self, Shard};
use crate::catalog::split;
use crate::error::{Failure, SqlState, warn};
use crate::guc;
use crate::keys::interval::Interval;
use crate::remote::quote::literal;
use crate::server::wait;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The limit for each shard, during which no other session routes in the keyspace, and a cutover waits. It is longer
/// for many entries.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const FOR_EACH_ENTRY: Duration = Duration::from_millis(1);

/// Tells guarded shards of entries that they get in the place of `old` ones.
pub fn admit(
    keyspace: &LockedKeyspace,
    old: &[String],
    new: RoutedEntries<'_>,
) -> std::result::Result<(), Failure> {
    let guarded = guard_record::of_keyspace(&keyspace.name);
    if guarded.is_empty() {
        return Ok(());
    }
    let before = match keyspace.strategy.order() {
        Some(_) => routing::current(&keyspace.name, old),
        None => HashMap::new(),
    };
    for (shard_key, names) in new.by_shard() {
        let shard = shard::by_key(shard_key)?;
        let names = gained(keyspace, &before, shard_key, names);
        if let Some(guard) =
            guarded.iter().find(|guard| !names.is_empty() && guard.shares_tables_with(&shard))
        {
            return Err(shared(guard, &shard));
        }
        if names.is_empty() || !guard_record::any_at(&guarded, &shard) {
            continue;
        }
        let own = guarded.iter().find(|guard| guard.shard_key == shard_key);
        let is_told = tell(&shard, keyspace, &names)
            .map_err(|error| explained(error, &shard, &keyspace.name, own.is_some()))?;
        if let Some(own) = own.filter(|own| !is_told && own.is_made()) {
            lost(own);
        }
    }
    Ok(())
}

/// Returns the error for a shard that was added in the database of a guarded one and shares tables with it.
fn shared(guard: &GuardRecord, shard: &Shard) -> Failure {
    let (shard, guarded) = (&shard.shard_key, &guard.shard_key);
    Failure::new(
        SqlState::IN_USE,
        format!("nothing can be routed to shard \"{shard}\": its tables are also those of shard \"{guarded}\", whose guard would refuse it"),
    )
    .hint(format!(
        "CALL shard_guard_remove({}, {}) first.",
        literal(guarded),
        literal(&guard.keyspace)
    ))
}

/// Handles a missing guard: it refuses nothing wrongly, but it does not guard either.
fn lost(guard: &GuardRecord) {
    if guard_record::is_gone(guard) {
        let text =
            format!("shard \"{}\" no longer has a guard of keyspace \"{}\"", guard.shard_key, guard.keyspace);
        warn(text, "shard_guard_install() creates it again.");
    }
}

/// Returns the new entries without parts of ranges that the shard has already: cutting and joining asks no shard.
fn gained(
    keyspace: &LockedKeyspace,
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

/// Tells a shard. Returns false if there is no guard of the keyspace there.
fn tell(shard: &Shard, keyspace: &LockedKeyspace, names: &[String]) -> Result<bool> {
    let limit = guc::remote_timeout().min(LONGEST_WAIT);
    let entries = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let until = Instant::now() + limit + FOR_EACH_ENTRY * entries;
    // Other sessions that route in the keyspace wait for this session's lock, and see here which shard it waits for.
    let _status = wait::instead_of_statement(&format!(
        "sending the routes of keyspace \"{}\" to the guard of shard \"{}\"",
        shard.shard_key, keyspace.name
    ));
    let mut session = session::open_within(shard, "assignment", limit)?;
    session.set_deadline(Some(until));
    master::check(&mut session, &split::identity())?;
    let place = [shard.namespace.as_str(), keyspace.name.as_str()];
    key_guard::tell(&mut session, place, keyspace.strategy, names, keyspace.key_type)
}

/// Explains an error. `has_one`: the shard is known to have a guard. Another shard may be in the same place as a
/// guard.
fn explained(error: SplitError, shard: &Shard, keyspace: &str, has_one: bool) -> Failure {
    let is_away = matches!(&error, SplitError::Remote(error) if error.is_transient());
    let mut failure = error.into_failure();
    let which = if has_one {
        format!("whose guard of keyspace \"{keyspace}\"")
    } else {
        format!("which may be where a guard of keyspace \"{keyspace}\" is and")
    };
    failure.message = format!(
        "nothing can be routed to shard \"{}\", {which} could not be changed: {}",
        shard.shard_key, failure.message
    );
    if is_away || failure.hint.is_none() {
        failure.hint = Some(if has_one {
            format!(
                "Try again once the shard answers. If it is lost, CALL shard_guard_remove({}, {}, force => true) forgets the guard. What remains of it there refuses new keys until shard_cleanup() removes it.",
                literal(&shard.shard_key),
                literal(keyspace)
            )
        } else {
            "Try again once the shard answers. shard_guard_install() for each of shard_guards() in the keyspace finds its guard at another address. Then the shard is not asked any more.".to_owned()
        });
    }
    failure
}

/// Warns about a guard that was removed without asking its shard, and is no longer recorded.
pub fn is_left(shard: &str, keyspace: &str) {
    let text = format!(
        "shard \"{shard}\" may still refuse keys, because a guard of keyspace \"{keyspace}\" was removed by force"
    );
    warn(text, "Before its tables are used again, shard_cleanup() of it as a shard removes the guard.");
}
