//! Rows of `shardmaster.routing_entry` and `shardmaster.routing_version`. Every statement here works on sets: the cost
//! of a call depends on the keys that it names.

use super::current_entry;
use super::keyspace::{Keyspace, LockedKeyspace};
use crate::keys::interval::{self, Interval};
use crate::keys::ordered::Ordered;
use crate::keys::strategy::EntryLookup;
use crate::server::sql;
use crate::words::hex;
use std::collections::{BTreeMap, HashMap};

/// The properties of a new routing version.
#[derive(Default)]
pub struct RoutingChange<'a> {
    pub reason: Option<&'a str>,
    pub split_id: Option<i64>,
    /// The least number of the version: a shard knows this number, and this master has lost it.
    pub version: Option<i64>,
    /// Entries may end without others that replace them.
    pub unassigns: bool,
    /// The version takes over what shards know, which blocks all other changes.
    pub adopts: bool,
    /// The last split that has moved what is taken over, from another run of this master.
    pub moved_by: Option<i64>,
    /// The operator has determined where the rows are.
    pub is_forced: bool,
}

/// Returns the shard that each of the keys is written to now; keys without an entry are left out.
pub fn current(keyspace: &str, keys: &[String]) -> HashMap<String, String> {
    if let Ok(found) = current_entry::written_to(keyspace, keys) {
        return found;
    }
    sql::read(
        "SELECT key, write_shard FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[keyspace.into(), keys.to_vec().into()],
        |row| (row.value(1), row.value(2)),
    )
    .into_iter()
    .collect()
}

/// The entries that a shard serves now.
pub struct Served {
    /// The entries, in their order.
    pub keys: Vec<String>,
    /// Whether all of them are also written there.
    pub are_written_there: bool,
}

/// Returns the entries that a shard serves now. The server compares millions of keys one by one if they are not the
/// first sort column, so keys of a directory are sorted here.
pub fn entries_on(keyspace: &Keyspace, shard_key: &str) -> Served {
    let is_directory = keyspace.strategy.is_directory();
    let order = if is_directory { "" } else { "ORDER BY bucket, lower(span), key COLLATE \"C\"" };
    let mut are_written_there = true;
    let mut keys: Vec<String> = sql::read(
        &format!(
            "SELECT key, write_shard = $2 FROM shardmaster.routing_entry
              WHERE keyspace = $1 AND valid_to IS NULL AND read_shard = $2 {order}"
        ),
        &[keyspace.name.as_str().into(), shard_key.into()],
        |row| {
            are_written_there &= row.value::<bool>(2);
            row.value(1)
        },
    );
    if is_directory {
        keys.sort_unstable();
    }
    Served { keys, are_written_there }
}

/// Returns all keys that are assigned now.
pub fn current_keys(keyspace: &str) -> Vec<String> {
    sql::read_column(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL ORDER BY key",
        &[keyspace.into()],
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

/// Returns a keyspace and a key in it that the shard serves now.
pub fn any_key_on(shard_key: &str) -> Option<(String, String)> {
    sql::read_one(
        "SELECT keyspace, key FROM shardmaster.routing_entry
          WHERE (write_shard = $1 OR read_shard = $1) AND valid_to IS NULL
          ORDER BY keyspace, key LIMIT 1",
        &[shard_key.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// Entries that are opened: their names and, in the same order, their shards.
#[derive(Clone, Copy, Default)]
pub struct RoutedEntries<'a> {
    pub names: &'a [String],
    pub shards: &'a [String],
}

impl<'a> RoutedEntries<'a> {
    /// Returns the names of each shard's entries.
    pub fn by_shard(self) -> BTreeMap<&'a str, Vec<String>> {
        let mut by_shard: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, shard) in self.names.iter().zip(self.shards) {
            by_shard.entry(shard).or_default().push(name.clone());
        }
        by_shard
    }
}

/// Inserts one new version: closes the entries of `old` keys and opens the `new` ones.
pub fn insert_version(
    keyspace: &LockedKeyspace,
    old: &[String],
    new: RoutedEntries<'_>,
    version: i64,
    change: &RoutingChange<'_>,
) {
    sql::write(
        "INSERT INTO shardmaster.routing_version (keyspace, version, reason, split_id) VALUES ($1, $2, $3, $4)",
        &[
            keyspace.name.as_str().into(),
            version.into(),
            change.reason.into(),
            change.split_id.or(change.moved_by).into(),
        ],
    );
    if !old.is_empty() {
        close(keyspace, old, new.names, version, change.unassigns);
    }
    insert(keyspace, new, version);
}

/// Closes entries. A closed entry keeps the shard where its rows were: what a cutover had changed in place is undone.
fn close(keyspace: &LockedKeyspace, old: &[String], new: &[String], version: i64, unassigns: bool) {
    sql::write(
        "UPDATE shardmaster.routing_entry
            SET valid_to = $3, write_shard = read_shard, reads_from = NULL, status = 'active', unassigned = NOT key = ANY ($4) AND $5
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[
            keyspace.name.as_str().into(),
            old.to_vec().into(),
            version.into(),
            new.to_vec().into(),
            unassigns.into(),
        ],
    );
}

fn insert(keyspace: &LockedKeyspace, new: RoutedEntries<'_>, version: i64) {
    let (mut lowers, mut uppers, mut spans) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    if let Some(of) = keyspace.strategy.order() {
        for interval in new.names.iter().filter_map(|name| Interval::parse(name, of)) {
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
            new.names.to_vec().into(),
            new.shards.to_vec().into(),
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

/// SQL condition: the current ranges that a span from $1 to $2 touches, found by the index of their lower bounds, so
/// that earlier ranges cost nothing.
pub const TOUCHED: &str = "e.valid_to IS NULL AND e.span IS NOT NULL AND lower(e.span) < $2 AND upper(e.span) > $1
    AND lower(e.span) >= coalesce((SELECT lower(first.span) FROM shardmaster.routing_entry first
                                    WHERE first.valid_to IS NULL AND first.span IS NOT NULL AND lower(first.span) <= $1
                                    ORDER BY lower(first.span) DESC LIMIT 1), $1)";

/// Returns the ranges that an interval touches, in their order.
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

/// Returns the name of the entry of a key in its canonical form. Returns None if the key is in no range.
pub fn entry_of(keyspace: &Keyspace, key: &str) -> Option<String> {
    match keyspace.strategy.entry(key) {
        EntryLookup::Named(name) => Some(name),
        EntryLookup::Covering(of) => sql::read_optional(
            "SELECT CASE WHEN upper(span) > $1 THEN key END FROM shardmaster.routing_entry
              WHERE valid_to IS NULL AND span IS NOT NULL AND lower(span) <= $1 ORDER BY lower(span) DESC LIMIT 1",
            &[interval::position(&keyspace.name, of, Some(key)).into()]),
    }
}

/// A routing entry with its number, and the shard that has the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingPlace {
    pub entry: i64,
    pub shard: String,
}

/// Returns where the rows of keys in their canonical form are. Keys that are routed nowhere are left out.
pub fn places(keyspace: &Keyspace, keys: &[String]) -> HashMap<String, RoutingPlace> {
    let (mut names, mut positions) = (Vec::new(), Vec::new());
    for key in keys {
        match keyspace.strategy.entry(key) {
            EntryLookup::Named(name) => names.push((key, name)),
            EntryLookup::Covering(of) => {
                positions.push(hex(&interval::position(&keyspace.name, of, Some(key))));
            }
        }
    }
    if !positions.is_empty() {
        return sql::read(
            "SELECT k.key, e.id, e.read_shard
               FROM unnest($1::text[], $2::text[]) AS k (key, position)
              CROSS JOIN LATERAL (
                  SELECT l.id, l.read_shard, upper(l.span) AS upper FROM shardmaster.routing_entry l
                   WHERE l.valid_to IS NULL AND l.span IS NOT NULL AND lower(l.span) <= decode(k.position, 'hex')
                   ORDER BY lower(l.span) DESC LIMIT 1) AS e
              WHERE e.upper > decode(k.position, 'hex')",
            &[keys.to_vec().into(), positions.into()],
            |row| (row.value(1), RoutingPlace { entry: row.value(2), shard: row.value(3) }),
        )
        .into_iter()
        .collect();
    }
    let wanted: Vec<String> = names.iter().map(|(_, name)| name.clone()).collect();
    let entries: HashMap<String, RoutingPlace> = sql::read(
        "SELECT key, id, read_shard FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL",
        &[keyspace.name.as_str().into(), wanted.into()],
        |row| (row.value(1), RoutingPlace { entry: row.value(2), shard: row.value(3) }),
    )
    .into_iter()
    .collect();
    names
        .into_iter()
        .filter_map(|(key, name)| entries.get(&name).map(|place| (key.clone(), place.clone())))
        .collect()
}

/// Holds back writes of the keys, which will go to the target; reads continue on the source. It changes the entries in
/// place, without a version; a second call changes nothing.
pub fn set_moving(keyspace: &LockedKeyspace, keys: &[String], target: &str) {
    sql::write(
        "UPDATE shardmaster.routing_entry SET write_shard = $3, status = 'disabled'
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL
            AND (write_shard <> $3 OR status <> 'disabled')",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), target.into()],
    );
}

/// Directs writes to the source again. It changes the entries in place, without a version.
pub fn set_back(keyspace: &LockedKeyspace, keys: &[String], source: &str) {
    sql::write(
        "UPDATE shardmaster.routing_entry SET write_shard = read_shard, status = 'active'
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL AND read_shard = $3
            AND (write_shard <> read_shard OR status <> 'active')",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), source.into()],
    );
}

/// Directs reads of the keys to a shard that follows the one with their rows; None directs them back. It changes the
/// entries in place, without a version.
pub fn set_reads(keyspace: &LockedKeyspace, keys: &[String], shard: Option<&str>) {
    sql::write(
        "UPDATE shardmaster.routing_entry SET reads_from = $3
          WHERE keyspace = $1 AND key = ANY ($2) AND valid_to IS NULL AND reads_from IS DISTINCT FROM $3",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), shard.into()],
    );
}

/// A current entry.
pub struct RoutingEntry {
    pub key: Option<String>,
    pub bucket: Option<i32>,
    pub lower: Option<String>,
    pub upper: Option<String>,
    /// The shard that reads use.
    pub read_shard: String,
    pub write_shard: String,
    pub status: String,
    pub version: i64,
}

pub fn entries(keyspace: &str) -> Vec<RoutingEntry> {
    sql::read(
        "SELECT CASE WHEN bucket IS NULL AND span IS NULL THEN key END, bucket, lower, upper,
                coalesce(reads_from, read_shard), write_shard, status, valid_from
           FROM shardmaster.routing_entry WHERE keyspace = $1 AND valid_to IS NULL
          ORDER BY bucket, lower(span), key COLLATE \"C\"",
        &[keyspace.into()],
        |row| RoutingEntry {
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
