//! Routing changes, each under its keyspace's lock: a new version, or a change in place while a cutover is running.

use super::{error, guarded, name_list};
use crate::catalog::keyspace::{self, LockedKeyspace};
use crate::catalog::reference::{self, UnfilledReference};
use crate::catalog::routing::{self, RoutedEntries, RoutingChange};
use crate::catalog::{event, misplaced_run, outdated, redirect};
use crate::error::Failure;
use crate::placement::tenants;
use std::collections::BTreeSet;

/// Creates one new version: closes the entries of `old` keys and opens the `new` ones. Slots of shards with a capacity
/// are transferred with them. A guarded shard is told of them first. Returns the version.
pub fn replace(
    keyspace: &LockedKeyspace,
    old: &[String],
    new: RoutedEntries<'_>,
    change: RoutingChange<'_>,
) -> Result<i64, Failure> {
    require_not_held(&keyspace.name, old, new.names, change.split_id.is_none())?;
    // A split checks its target itself: it tells the target when it opens it, and may have decided.
    if change.split_id.is_none() {
        match change {
            RoutingChange { adopts: true, .. } => {}
            RoutingChange { is_forced: true, .. } => outdated::require_current_or_named(&keyspace.name)?,
            _ => outdated::require_current(&keyspace.name)?,
        }
        require_filled(&keyspace.name, new.shards)?;
        guarded::admit(keyspace, old, new)?;
    }
    if keyspace.strategy.is_directory() {
        tenants::routed(&keyspace.name, old, new, change.split_id)?;
    }
    let next = keyspace::version(&keyspace.name) + 1;
    let version = change.version.map_or(next, |at_least| next.max(at_least));
    routing::insert_version(keyspace, old, new, version, &change);
    // A split admits its keys itself.
    if change.split_id.is_none() {
        redirect::assigned(keyspace, new);
    }
    event::routing_changed(&keyspace.name, version);
    Ok(version)
}

/// Requires the reference tables on these shards: rows may refer to rows that every shard must have.
fn require_filled(keyspace: &str, shards: &[String]) -> Result<(), Failure> {
    let shards: Vec<String> = shards.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
    match reference::unfilled(keyspace, &shards) {
        None => Ok(()),
        Some(UnfilledReference { table_name, shard, error: why }) => {
            Err(error::no_reference_table(&shard, &table_name, why.as_deref()))
        }
    }
}

/// Refuses keys of runs that hold rows of a key on one shard for another one, since these rely on the key's route. A
/// split does not route keys that are in no range, for which a run holds all of the keyspace: it has fenced its
/// writers by now, and waits for nothing.
fn require_not_held(keyspace: &str, old: &[String], new: &[String], or_all: bool) -> Result<(), Failure> {
    // Mostly there is no run, so the entries need not be checked.
    if misplaced_run::of_keyspace(keyspace).is_none() {
        return Ok(());
    }
    let entries = [old, new].concat();
    match misplaced_run::of_entries(keyspace, &entries, or_all).into_iter().next() {
        Some((run, key)) => Err(error::key_in_run(&key, run)),
        None => Ok(()),
    }
}

/// Begins the change of a cutover: writes of the keys are held back and will go to the target; reads continue on the
/// source. It changes the entries in place, without a version; a second call changes nothing.
pub fn set_moving(keyspace: &str, keys: &[String], target: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    outdated::require_current(&keyspace.name)?;
    check_assigned(&keyspace, keys)?;
    routing::set_moving(&keyspace, keys, target);
    Ok(())
}

/// Undoes this for an aborted cutover: writes go to the source again. It changes the entries in place, without a
/// version.
pub fn revert(keyspace: &str, keys: &[String], source: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    routing::set_back(&keyspace, keys, source);
    Ok(())
}

/// Directs reads of the keys to a split's target, which follows the shard with their rows; None directs them back. It
/// changes the entries in place, without a version.
pub fn send_reads(keyspace: &str, keys: &[String], target: Option<&str>) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    routing::set_reads(&keyspace, keys, target);
    Ok(())
}

/// Makes the cutover's decision: the keys are read from and written to the target. Returns the new version, at least
/// the given one.
pub fn move_keys(
    keyspace: &str,
    keys: &[String],
    target: &str,
    split_id: i64,
    reason: &str,
    version: Option<i64>,
) -> Result<i64, Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    check_assigned(&keyspace, keys)?;
    let targets = vec![target.to_owned(); keys.len()];
    let change =
        RoutingChange { reason: Some(reason), split_id: Some(split_id), version, ..RoutingChange::default() };
    replace(&keyspace, keys, RoutedEntries { names: keys, shards: &targets }, change)
}

fn check_assigned(keyspace: &LockedKeyspace, keys: &[String]) -> Result<(), Failure> {
    let current = routing::current(&keyspace.name, keys);
    let missing: Vec<&str> =
        keys.iter().map(String::as_str).filter(|key| !current.contains_key(*key)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(error::unknown_keys(&keyspace.name, &name_list(missing)))
}

#[cfg(all(feature = "pg_test", not(test)))]
#[pgrx::pg_schema]
mod tests {
    use super::*;
    use crate::catalog::caller::Caller;
    use crate::catalog::keyspace;
    use crate::catalog::routing_history::{history, shard_at};
    use crate::catalog::shard::{self, NewShard};
    use crate::routing::endpoint::GivenEndpoint;
    use crate::routing::{assign, rollback, topology};
    use pgrx::prelude::*;

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    /// Creates shards a and b, and keys x and y on a; returns the version.
    fn cluster() -> i64 {
        for name in ["a", "b"] {
            let new = NewShard {
                shard_key: name.into(),
                kind: shard::POSTGRES.into(),
                capacity: None,
                namespace: name.into(),
            };
            let here = GivenEndpoint::default();
            assert!(Caller::as_owner(|caller| topology::add(new, &here, caller)).is_ok());
        }
        let both = vec![Some("x".into()), Some("y".into())];
        assign::assign(both, "a", keyspace::DEFAULT, false, None).unwrap_or(-1)
    }

    fn entry(key: &str) -> (String, String, String, i64) {
        let entries = routing::entries(keyspace::DEFAULT);
        let found = entries.into_iter().find(|e| e.key.as_deref() == Some(key));
        found.map(|e| (e.read_shard, e.write_shard, e.status, e.version)).unwrap_or_default()
    }

    fn at(key: &str, version: i64) -> Option<String> {
        keyspace::find(keyspace::DEFAULT).ok().and_then(|keyspace| shard_at(&keyspace, key, version))
    }

    fn expect(key: &str, read: &str, write: &str, status: &str, version: i64) {
        assert_eq!(entry(key), (read.into(), write.into(), status.into(), version));
    }

    #[pg_test]
    fn cutover_in_place_makes_no_version() {
        let version = cluster();
        for _ in 0..2 {
            assert!(set_moving(keyspace::DEFAULT, &keys(&["x"]), "b").is_ok());
            expect("x", "a", "b", "disabled", version);
            expect("y", "a", "a", "active", version);
        }
        for _ in 0..2 {
            assert!(revert(keyspace::DEFAULT, &keys(&["x"]), "a").is_ok());
            expect("x", "a", "a", "active", version);
        }
        assert_eq!(keyspace::version(keyspace::DEFAULT), version);
        assert!(set_moving(keyspace::DEFAULT, &keys(&["x", "unknown"]), "b").is_err());
    }

    #[pg_test]
    fn reads_go_elsewhere_in_place() {
        let version = cluster();
        assert!(send_reads(keyspace::DEFAULT, &keys(&["x"]), Some("b")).is_ok());
        expect("x", "b", "a", "active", version);
        expect("y", "a", "a", "active", version);
        assert_eq!(at("x", version).as_deref(), Some("a"));
        let served = keyspace::lock(keyspace::DEFAULT).map(|locked| routing::entries_on(&locked, "a"));
        assert!(served.is_ok_and(|served| served.keys == keys(&["x", "y"]) && served.are_written_there));
        assert!(send_reads(keyspace::DEFAULT, &keys(&["x"]), None).is_ok());
        expect("x", "a", "a", "active", version);
        assert!(send_reads(keyspace::DEFAULT, &keys(&["x"]), Some("b")).is_ok());
        let moved = move_keys(keyspace::DEFAULT, &keys(&["x"]), "b", 7, "split 7", None).unwrap_or(-1);
        expect("x", "b", "b", "active", moved);
    }

    #[pg_test]
    fn decision_is_one_version_from_the_shard_that_was_read() {
        let before = cluster();
        let moving = keys(&["x"]);
        assert!(set_moving(keyspace::DEFAULT, &moving, "b").is_ok());
        let moved = move_keys(keyspace::DEFAULT, &moving, "b", 7, "split 7", None).unwrap_or(-1);
        assert_eq!(moved, before + 1);
        expect("x", "b", "b", "active", moved);
        expect("y", "a", "a", "active", before);
        assert_eq!(at("x", before).as_deref(), Some("a"));
        let last = history(keyspace::DEFAULT).pop();
        let last = last.map(|h| (h.key, h.from_shard, h.to_shard, h.split_id));
        assert_eq!(last, Some((Some("x".into()), Some("a".into()), Some("b".into()), Some(7))));
        assert!(rollback::rollback(before, keyspace::DEFAULT).is_err());
        assert!(rollback::rollback(0, keyspace::DEFAULT).is_err());
    }

    #[pg_test]
    fn version_that_a_shard_knows_is_adopted() {
        let before = cluster();
        let moving = keys(&["x"]);
        let adopted = move_keys(keyspace::DEFAULT, &moving, "b", 7, "split 7", Some(before + 10));
        assert_eq!(adopted.unwrap_or(-1), before + 10);
        let older = move_keys(keyspace::DEFAULT, &moving, "a", 8, "split 8", Some(1));
        assert_eq!(older.unwrap_or(-1), before + 11);
        assert_eq!(at("x", before + 5).as_deref(), Some("a"));
    }
}
