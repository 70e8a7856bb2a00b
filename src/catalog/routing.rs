//! Rows of `shardmaster.routing_entry` and `shardmaster.routing_version`. Everything
//! here is set-based: what a call costs depends on the keys that it names.

use crate::catalog::event;
use crate::catalog::keyspace::{self, Keyspace, Locked, Strategy};
use crate::catalog::redirect;
use crate::error::Failure;
use crate::placement::tenants;
use crate::routing::RoutingError;
use crate::routing::interval::{self, Interval};
use crate::routing::ordered::Ordered;
use crate::sql;
use std::collections::HashMap;

/// What a new routing version says of itself.
#[derive(Default)]
pub struct Change<'a> {
    pub reason: Option<&'a str>,
    pub split_id: Option<i64>,
    /// At least this one: a number that a shard knows and this master has lost.
    pub version: Option<i64>,
    /// Entries may end without others that take their place.
    pub unassigns: bool,
}

/// Where each of the keys is written to now; keys without an entry are left out.
pub fn current(keyspace: &str, keys: &[String]) -> HashMap<String, String> {
    sql::read(
        "SELECT key, write_shard FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[keyspace.into(), keys.to_vec().into()],
        |row| (row.value(1), row.value(2)),
    )
    .into_iter()
    .collect()
}

/// The entries that a shard serves now, in their order.
pub fn entries_on(keyspace: &str, shard_key: &str) -> Vec<String> {
    sql::read(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL AND read_shard = $2
          ORDER BY bucket, lower(span), key COLLATE \"C\"",
        &[keyspace.into(), shard_key.into()],
        |row| row.value(1),
    )
}

/// All keys that are assigned now.
pub fn current_keys(keyspace: &str) -> Vec<String> {
    sql::read(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL ORDER BY key",
        &[keyspace.into()],
        |row| row.value(1),
    )
}

pub fn any_current_key(keyspace: &str) -> Option<String> {
    sql::read_one(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL ORDER BY key LIMIT 1",
        &[keyspace.into()],
        |row| row.value(1),
    )
}

/// A keyspace and a key in it that the shard serves now.
pub fn any_key_on(shard_key: &str) -> Option<(String, String)> {
    sql::read_one(
        "SELECT keyspace, key FROM shardmaster.routing_entry
          WHERE (write_shard = $1 OR read_shard = $1) AND valid_to IS NULL
          ORDER BY keyspace, key LIMIT 1",
        &[shard_key.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// One new version: closes the entries of `old` keys and opens those of the `new` ones,
/// given as keys and, in the same order, shards. Slots of shards with a capacity change
/// hands with them. Returns the version.
pub fn replace(
    keyspace: &Locked,
    old: &[String],
    new: (&[String], &[String]),
    change: Change<'_>,
) -> Result<i64, Failure> {
    if keyspace.strategy == Strategy::Directory {
        tenants::routed(&keyspace.name, old, new, change.split_id)?;
    }
    let next = keyspace::version(&keyspace.name) + 1;
    let version = change.version.map_or(next, |at_least| next.max(at_least));
    sql::write(
        "INSERT INTO shardmaster.routing_version (keyspace, version, reason, split_id) VALUES ($1, $2, $3, $4)",
        &[keyspace.name.as_str().into(), version.into(), change.reason.into(), change.split_id.into()],
    );
    // A closed entry says where its rows were: what a cutover had set in place is undone.
    sql::write(
        "UPDATE shardmaster.routing_entry
            SET valid_to = $3, write_shard = read_shard, status = 'active', unassigned = NOT key = ANY ($4) AND $5
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[
            keyspace.name.as_str().into(),
            old.to_vec().into(),
            version.into(),
            new.0.to_vec().into(),
            change.unassigns.into(),
        ],
    );
    insert(keyspace, new, version);
    // A split lets its keys in itself.
    if change.split_id.is_none() {
        redirect::assigned(keyspace, new.0, new.1);
    }
    event::routing_changed(&keyspace.name, version);
    Ok(version)
}

fn insert(keyspace: &Locked, new: (&[String], &[String]), version: i64) {
    let (mut lowers, mut uppers, mut spans) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    if let Strategy::Range { of } = keyspace.strategy {
        for interval in new.0.iter().filter_map(|name| Interval::parse(name, of)) {
            let span = interval.span(&keyspace.name, of);
            spans.0.push(span.lower_hex());
            spans.1.push(span.upper_hex());
            lowers.push(interval.lower);
            uppers.push(interval.upper);
        }
    }
    sql::write(
        "INSERT INTO shardmaster.routing_entry
                (keyspace, key, bucket, lower, upper, span, read_shard, write_shard, valid_from)
         SELECT $1, n.key, CASE WHEN $5 = 'hash' THEN n.key::int END, n.lower, n.upper,
                CASE WHEN $5 = 'range' THEN shardmaster.key_span(decode(n.low, 'hex'), decode(n.high, 'hex')) END,
                n.shard, n.shard, $4
           FROM unnest($2, $3, $6, $7, $8, $9) n (key, shard, lower, upper, low, high)",
        &[
            keyspace.name.as_str().into(),
            new.0.to_vec().into(),
            new.1.to_vec().into(),
            version.into(),
            keyspace.strategy.name().into(),
            lowers.into(),
            uppers.into(),
            spans.0.into(),
            spans.1.into(),
        ],
    );
}

/// A range that is assigned now.
pub struct RangeEntry {
    pub name: String,
    pub interval: Interval,
    pub shard: String,
}

/// The current ranges that a span from $1 to $2 touches, found by the index of their lower
/// bounds: what was before costs nothing.
pub const TOUCHED: &str = "e.valid_to IS NULL AND e.span IS NOT NULL AND lower(e.span) < $2 AND upper(e.span) > $1
    AND lower(e.span) >= coalesce((SELECT lower(first.span) FROM shardmaster.routing_entry first
                                    WHERE first.valid_to IS NULL AND first.span IS NOT NULL AND lower(first.span) <= $1
                                    ORDER BY lower(first.span) DESC LIMIT 1), $1)";

/// The ranges that an interval touches, in their order.
pub fn ranges(keyspace: &str, of: Ordered, within: &Interval) -> Vec<RangeEntry> {
    let span = within.span(keyspace, of);
    sql::read(
        &format!(
            "SELECT e.key, e.lower, e.upper, e.write_shard FROM shardmaster.routing_entry e
              WHERE {TOUCHED} ORDER BY lower(e.span)"
        ),
        &[span.lower.into(), span.upper.into()],
        |row| RangeEntry {
            name: row.value(1),
            interval: Interval { lower: row.get(2), upper: row.get(3) },
            shard: row.value(4),
        },
    )
}

/// What the entry of a key, in its canonical form, is called; None: the key is in no
/// range.
pub fn entry_of(keyspace: &Keyspace, key: &str) -> Option<String> {
    match keyspace.strategy {
        Strategy::Directory => Some(key.to_owned()),
        Strategy::Hash { buckets, of } => Some(of.bucket(key, buckets).to_string()),
        Strategy::Range { of } => sql::read_one(
            "SELECT CASE WHEN upper(span) > $1 THEN key END FROM shardmaster.routing_entry
              WHERE valid_to IS NULL AND span IS NOT NULL AND lower(span) <= $1 ORDER BY lower(span) DESC LIMIT 1",
            &[interval::position(&keyspace.name, of, Some(key)).into()],
            |row| row.get(1),
        )
        .flatten(),
    }
}

/// Cutover: writes of the keys are held back and will go to the target; reads go on at
/// the source. In place, no version; calling it again changes nothing.
pub fn set_moving(keyspace: &str, keys: &[String], target: &str) -> Result<(), RoutingError> {
    let keyspace = keyspace::lock(keyspace)?;
    check_assigned(&keyspace, keys)?;
    sql::write(
        "UPDATE shardmaster.routing_entry SET write_shard = $3, status = 'disabled'
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL
            AND (write_shard <> $3 OR status <> 'disabled')",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), target.into()],
    );
    Ok(())
}

/// The cutover is given up: writes go to the source again. In place, no version.
pub fn set_back(keyspace: &str, keys: &[String], source: &str) -> Result<(), RoutingError> {
    let keyspace = keyspace::lock(keyspace)?;
    sql::write(
        "UPDATE shardmaster.routing_entry SET write_shard = read_shard, status = 'active'
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL AND read_shard = $3
            AND (write_shard <> read_shard OR status <> 'active')",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), source.into()],
    );
    Ok(())
}

/// The cutover's decision: the keys are read from and written to the target. Returns the
/// new version, at least the given one.
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
    let change = Change { reason: Some(reason), split_id: Some(split_id), version, unassigns: false };
    replace(&keyspace, keys, (keys, &targets), change)
}

fn check_assigned(keyspace: &Locked, keys: &[String]) -> Result<(), RoutingError> {
    let current = current(&keyspace.name, keys);
    let missing: Vec<&str> =
        keys.iter().map(String::as_str).filter(|key| !current.contains_key(*key)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let keys = crate::routing::name_list(missing);
    Err(RoutingError::UnknownKeys { keys, keyspace: keyspace.name.clone() })
}

/// A current entry.
pub struct Entry {
    pub key: Option<String>,
    pub bucket: Option<i32>,
    pub lower: Option<String>,
    pub upper: Option<String>,
    pub read_shard: String,
    pub write_shard: String,
    pub status: String,
    pub version: i64,
}

pub fn entries(keyspace: &str) -> Vec<Entry> {
    sql::read(
        "SELECT CASE WHEN bucket IS NULL AND span IS NULL THEN key END, bucket, lower, upper,
                read_shard, write_shard, status, valid_from
           FROM shardmaster.routing_entry WHERE keyspace = $1 AND valid_to IS NULL
          ORDER BY bucket, lower(span), key COLLATE \"C\"",
        &[keyspace.into()],
        |row| Entry {
            key: row.get(1),
            bucket: row.get(2),
            lower: row.get(3),
            upper: row.get(4),
            read_shard: row.value(5),
            write_shard: row.value(6),
            status: row.value(7),
            version: row.value(8),
        },
    )
}

#[cfg(all(feature = "pg_test", not(test)))]
#[pgrx::pg_schema]
mod tests {
    use super::super::routing_history::{history, shard_at};
    use super::*;
    use crate::catalog::keyspace;
    use crate::catalog::shard::{self, NewShard};
    use crate::routing::{assign, rollback, topology};
    use pgrx::prelude::*;

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    /// Shards a and b, keys x and y on a; returns the version.
    fn cluster() -> i64 {
        for name in ["a", "b"] {
            let new = NewShard {
                shard_key: name.into(),
                kind: shard::POSTGRES.into(),
                capacity: None,
                namespace: name.into(),
                conninfo: None,
                client_conninfo: None,
            };
            assert!(topology::add(new).is_ok());
        }
        let both = vec![Some("x".into()), Some("y".into())];
        assign::assign(both, "a", keyspace::DEFAULT, false, None).unwrap_or(-1)
    }

    fn entry(key: &str) -> (String, String, String, i64) {
        let entries = entries(keyspace::DEFAULT);
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
            assert!(set_back(keyspace::DEFAULT, &keys(&["x"]), "a").is_ok());
            expect("x", "a", "a", "active", version);
        }
        assert_eq!(keyspace::version(keyspace::DEFAULT), version);
        assert!(set_moving(keyspace::DEFAULT, &keys(&["x", "unknown"]), "b").is_err());
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
