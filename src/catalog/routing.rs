//! Rows of `shardmaster.routing_entry` and `shardmaster.routing_version`. Everything
//! here is set-based: what a call costs depends on the keys that it names.

use crate::catalog::event;
use crate::catalog::keyspace::{self, Locked};
use crate::error::Failure;
use crate::placement::tenants;
use crate::routing::RoutingError;
use crate::sql;
use pgrx::prelude::*;
use std::collections::HashMap;

/// What a new routing version says of itself.
#[derive(Default)]
pub struct Change<'a> {
    pub reason: Option<&'a str>,
    pub split_id: Option<i64>,
    /// At least this one: a number that a shard knows and this master has lost.
    pub version: Option<i64>,
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

/// All keys that are assigned now.
pub fn current_keys(keyspace: &str) -> Vec<String> {
    sql::read(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL AND key IS NOT NULL ORDER BY key",
        &[keyspace.into()],
        |row| row.value(1),
    )
}

pub fn any_current_key(keyspace: &str) -> Option<String> {
    sql::read_one(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL AND key IS NOT NULL ORDER BY key LIMIT 1",
        &[keyspace.into()],
        |row| row.value(1),
    )
}

/// A keyspace and a key in it that the shard serves now.
pub fn any_key_on(shard_key: &str) -> Option<(String, String)> {
    sql::read_one(
        "SELECT keyspace, key FROM shardmaster.routing_entry
          WHERE (write_shard = $1 OR read_shard = $1) AND valid_to IS NULL AND key IS NOT NULL
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
    tenants::routed(&keyspace.name, old, new, change.split_id)?;
    let next = keyspace::version(&keyspace.name) + 1;
    let version = change.version.map_or(next, |at_least| next.max(at_least));
    sql::write(
        "INSERT INTO shardmaster.routing_version (keyspace, version, reason, split_id) VALUES ($1, $2, $3, $4)",
        &[keyspace.name.as_str().into(), version.into(), change.reason.into(), change.split_id.into()],
    );
    // A closed entry says where its rows were: what a cutover had set in place is undone.
    sql::write(
        "UPDATE shardmaster.routing_entry
            SET valid_to = $3, write_shard = read_shard, status = 'active'
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[keyspace.name.as_str().into(), old.to_vec().into(), version.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.routing_entry (keyspace, key, read_shard, write_shard, valid_from)
         SELECT $1, n.key, n.shard, n.shard, $4 FROM unnest($2, $3) n (key, shard)",
        &[keyspace.name.as_str().into(), new.0.to_vec().into(), new.1.to_vec().into(), version.into()],
    );
    event::routing_changed(&keyspace.name, version);
    Ok(version)
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
    let change = Change { reason: Some(reason), split_id: Some(split_id), version };
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

/// Keys that a version routes otherwise than now, with the shard that it gives them;
/// None: not assigned in that version.
pub fn difference(keyspace: &str, version: i64) -> Vec<(String, Option<String>)> {
    sql::read(
        "SELECT coalesce(o.key, n.key), o.read_shard
           FROM (SELECT key, read_shard FROM shardmaster.routing_entry
                  WHERE keyspace = $1 AND valid_from <= $2 AND (valid_to IS NULL OR valid_to > $2)) o
           FULL JOIN
                (SELECT key, read_shard FROM shardmaster.routing_entry
                  WHERE keyspace = $1 AND valid_to IS NULL) n ON n.key = o.key
          WHERE o.read_shard IS DISTINCT FROM n.read_shard
          ORDER BY 1",
        &[keyspace.into(), version.into()],
        |row| (row.value(1), row.get(2)),
    )
}

/// Those of the keys that a split has moved after the version.
pub fn moved_by_split_since(keyspace: &str, keys: &[String], version: i64) -> Vec<String> {
    sql::read(
        "SELECT DISTINCT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND key = ANY ($2)
            AND valid_from = ANY (ARRAY(SELECT version FROM shardmaster.routing_version
                                         WHERE keyspace = $1 AND version > $3 AND split_id IS NOT NULL))
          ORDER BY 1",
        &[keyspace.into(), keys.to_vec().into(), version.into()],
        |row| row.value(1),
    )
}

/// Where a version routes a key.
pub fn shard_at(keyspace: &str, key: &str, version: i64) -> Option<String> {
    sql::read_one(
        "SELECT read_shard FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND key = $2 AND valid_from <= $3 AND (valid_to IS NULL OR valid_to > $3)",
        &[keyspace.into(), key.into(), version.into()],
        |row| row.value(1),
    )
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
        "SELECT key, bucket, lower, upper, read_shard, write_shard, status, valid_from
           FROM shardmaster.routing_entry WHERE keyspace = $1 AND valid_to IS NULL
          ORDER BY bucket, key COLLATE \"C\"",
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

/// What a version did to one key.
pub struct HistoryRow {
    pub version: i64,
    pub changed_at: TimestampWithTimeZone,
    pub key: Option<String>,
    pub from_shard: Option<String>,
    pub to_shard: Option<String>,
    pub reason: Option<String>,
    pub changed_by: String,
    pub split_id: Option<i64>,
}

/// The shards are those that the rows were read from: a cutover's target counts once it
/// is decided.
pub fn history(keyspace: &str) -> Vec<HistoryRow> {
    sql::read(
        "SELECT v.version, v.changed_at, c.key, c.from_shard, c.to_shard, v.reason, v.changed_by, v.split_id
           FROM shardmaster.routing_version v
           LEFT JOIN (SELECT version, key, max(from_shard) AS from_shard, max(to_shard) AS to_shard
                        FROM (SELECT valid_from AS version, key, NULL AS from_shard, read_shard AS to_shard
                                FROM shardmaster.routing_entry WHERE keyspace = $1
                               UNION ALL
                              SELECT valid_to, key, read_shard, NULL
                                FROM shardmaster.routing_entry WHERE keyspace = $1 AND valid_to IS NOT NULL) e
                       GROUP BY version, key) c ON c.version = v.version
          WHERE v.keyspace = $1
          ORDER BY v.version, c.key COLLATE \"C\"",
        &[keyspace.into()],
        |row| HistoryRow {
            version: row.value(1),
            changed_at: row.value(2),
            key: row.get(3),
            from_shard: row.get(4),
            to_shard: row.get(5),
            reason: row.get(6),
            changed_by: row.value(7),
            split_id: row.get(8),
        },
    )
}

#[cfg(any(test, feature = "pg_test"))]
#[pg_schema]
mod tests {
    use super::*;
    use crate::catalog::shard::{self, NewShard};
    use crate::routing::{assign, rollback, topology};

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
        assert_eq!(shard_at(keyspace::DEFAULT, "x", before).as_deref(), Some("a"));
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
        assert_eq!(shard_at(keyspace::DEFAULT, "x", before + 5).as_deref(), Some("a"));
    }
}
