//! The hot path: looks up the shard of a key. It takes no lock and no transaction id, so it works on a standby.
//! Earlier results come from the cache.

use super::cache::{self, CachedAnswer};
use super::found::{FoundEntry, FoundRoute, Intent, client_conninfo, same_for_all};
use super::owner::as_owner;
use super::{after_start, error};
use crate::catalog::shard::ShardStatus;
use crate::catalog::{current_entry, keyspace, outdated, shard_decision};
use crate::error::Failure;
use crate::keys::interval;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::{EntryLookup, Strategy};
use crate::routing::held_write::HeldWrite;
use crate::routing::key_owner_cache;
use crate::server::index_scan;
use crate::server::sql::{self, Prepared, Row};
use pgrx::pg_sys;
use std::borrow::Cow;
use std::rc::Rc;

/// Returns only the shard_key.
pub fn shard_of(key: &str, intent: Intent, keyspace: &str) -> Result<String, Failure> {
    if let Some(known) = known(key, intent, keyspace, |found| found.shard_key.clone()) {
        return Ok(known);
    }
    Ok(find(key, intent, keyspace)?.shard_key.clone())
}

pub fn route(key: &str, intent: Intent, keyspace: &str) -> Result<FoundRoute, Failure> {
    match known(key, intent, keyspace, FoundEntry::route) {
        Some(route) => route,
        None => find(key, intent, keyspace)?.route(),
    }
}

/// Returns what this session has found before; for a key of a lookup index, by its owner.
fn known<R>(key: &str, intent: Intent, keyspace: &str, answer: impl Fn(&FoundEntry) -> R) -> Option<R> {
    cache::get(key, intent, keyspace, &answer)
        .or_else(|| key_owner_cache::get(key, keyspace, |owner, of| cache::get(owner, intent, of, &answer)))
}

/// Returns the owner of a key of a lookup index.
pub fn owner(key: &str, lookup: &str) -> Result<String, Failure> {
    if let Some(known) = key_owner_cache::get(key, lookup, |owner, _| Some(owner.to_owned())) {
        return Ok(known);
    }
    as_owner(|| match key_owner_cache::find(key, lookup)? {
        Some(owner) => Ok(owner.key),
        None => {
            keyspace::find(lookup)?;
            Err(error::no_lookup(lookup))
        }
    })
}

/// The result of one query: the keyspace, and the entry if there is one.
struct RouteLook {
    key_type: KeyType,
    strategy: Strategy,
    found: Option<FoundEntry>,
    /// The bounds of a range.
    span: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether what was found of the shard is valid for each of its entries.
    same_for_all: bool,
    /// Whether shards know decisions that this master has lost.
    is_outdated: bool,
}

/// The query joins the shard by one plain column: with an expression of the intent it would read every shard.
/// `outdated` is false for readers.
macro_rules! lookup {
    ($intent:ident, $shard_column:literal, $entry:literal, $type:expr, $outdated:literal) => {
        Prepared::new(
            concat!(
                "SELECT k.key_type, k.strategy, k.buckets,
                        (SELECT v.version FROM shardmaster.routing_version v
                          WHERE v.keyspace = $1 ORDER BY v.version DESC LIMIT 1),
                        e.status = 'disabled', s.shard_key, s.status, s.namespace, s.conninfo, ",
                client_conninfo!($intent),
                ", lower(e.span), upper(e.span), ",
                same_for_all!($intent),
                ", ",
                $outdated,
                "
                   FROM shardmaster.keyspace k
                   LEFT JOIN (shardmaster.routing_entry e JOIN shardmaster.shard s ON s.shard_key = ",
                $shard_column,
                ") ON e.keyspace = k.name AND e.valid_to IS NULL AND ",
                $entry,
                " WHERE k.name = $1"
            ),
            &[pg_sys::TEXTOID, $type],
        )
    };
}

/// The query for the last range that begins at or before the key; whether the key is in it is checked on the result.
macro_rules! by_position {
    ($intent:ident, $shard_column:literal, $outdated:literal) => {
        lookup!(
            $intent,
            $shard_column,
            "e.id = (SELECT CASE WHEN upper(l.span) > $2 THEN l.id END FROM shardmaster.routing_entry l
                      WHERE l.valid_to IS NULL AND l.span IS NOT NULL AND lower(l.span) <= $2
                      ORDER BY lower(l.span) DESC LIMIT 1)",
            pg_sys::BYTEAOID,
            $outdated
        )
    };
}

thread_local! {
    static READ: Prepared = const { lookup!(read, "coalesce(e.reads_from, e.read_shard)", "e.key = $2", pg_sys::TEXTOID, "false") };
    static WRITE: Prepared = const {
        lookup!(
            write,
            "e.write_shard",
            "e.key = $2",
            pg_sys::TEXTOID,
            "EXISTS (SELECT FROM shardmaster.lost_decision l WHERE l.keyspace = k.name)"
        )
    };
    static READ_RANGE: Prepared = const { by_position!(read, "coalesce(e.reads_from, e.read_shard)", "false") };
    static WRITE_RANGE: Prepared = const {
        by_position!(
            write,
            "e.write_shard",
            "EXISTS (SELECT FROM shardmaster.lost_decision l WHERE l.keyspace = k.name)"
        )
    };
    /// These are for the catalog of a version without lost decisions.
    static WRITE_BEFORE: Prepared = const { lookup!(write, "e.write_shard", "e.key = $2", pg_sys::TEXTOID, "false") };
    static WRITE_RANGE_BEFORE: Prepared = const { by_position!(write, "e.write_shard", "false") };
}

/// Looks up the entry of this name.
fn look(name: &str, intent: Intent, keyspace: &str) -> Option<RouteLook> {
    let query = match intent {
        Intent::Read => &READ,
        Intent::Write if shard_decision::is_here() => &WRITE,
        Intent::Write => &WRITE_BEFORE,
    };
    sql::read_one_prepared(query, &[keyspace.into(), name.into()], |row| from_row(&row))
}

/// Looks up the range that contains a key.
fn look_in_ranges(key: &str, of: Ordered, intent: Intent, keyspace: &str) -> Option<RouteLook> {
    let query = match intent {
        Intent::Read => &READ_RANGE,
        Intent::Write if shard_decision::is_here() => &WRITE_RANGE,
        Intent::Write => &WRITE_RANGE_BEFORE,
    };
    let position = interval::position(keyspace, of, Some(key));
    sql::read_one_prepared(query, &[keyspace.into(), position.into()], |row| from_row(&row))
}

fn from_row(row: &Row<'_>) -> RouteLook {
    let key_type = row.get::<String>(1).map(|name| KeyType::from_catalog(&name));
    RouteLook {
        strategy: Strategy::from_catalog(&row.value::<String>(2), row.get(3), key_type),
        key_type: key_type.unwrap_or(KeyType::Text),
        span: row.get::<Vec<u8>>(11).zip(row.get::<Vec<u8>>(12)),
        same_for_all: row.get(13).unwrap_or(false),
        is_outdated: row.value(14),
        found: row.get::<String>(6).map(|shard_key| FoundEntry {
            version: row.get(4).unwrap_or(0),
            disabled: row.value(5),
            shard_key,
            shard_status: ShardStatus::from_catalog(&row.value::<String>(7)),
            namespace: row.value(8),
            conninfo: row.get(9),
            client_conninfo: row.get(10),
        }),
    }
}

/// Looks up a key. The key is tried as given first, because it mostly is in its canonical form; its type is known only
/// then. Returns the canonical form, too. Returns None if there is no such keyspace.
fn look_canonical<'a>(key: &'a str, intent: Intent, keyspace: &str) -> Option<(Cow<'a, str>, RouteLook)> {
    let first = look(key, intent, keyspace)?;
    let canonical = first.key_type.canonical(key);
    let found = match first.strategy.entry(&canonical) {
        EntryLookup::Named(name) if name == key => Some(first),
        EntryLookup::Named(name) => look(&name, intent, keyspace),
        EntryLookup::Covering(of) => look_in_ranges(&canonical, of, intent, keyspace),
    };
    Some((canonical, found?))
}

/// Looks up the tables, as the role that owns them: a key's own route, or else that of its owner.
fn find(key: &str, intent: Intent, keyspace: &str) -> Result<Rc<FoundEntry>, Failure> {
    if !key_owner_cache::is_lookup(keyspace)
        && let Some(found) = find_routed(key, intent, keyspace)?
    {
        return Ok(found);
    }
    let owner = as_owner(|| key_owner_cache::find(key, keyspace))?;
    let owner = owner.ok_or_else(|| error::unknown_keyspace(keyspace))?;
    if let Some(found) = cache::get_whole(&owner.key, intent, &owner.of) {
        return Ok(found);
    }
    find_routed(&owner.key, intent, &owner.of)?.ok_or_else(|| error::unknown_keyspace(&owner.of))
}

/// Answers from what this session knows of the keyspace and of the shard, and from the entry itself. The answer is
/// valid as of when the shard was last looked up, which holds until an invalidation comes, like that of a known key:
/// the entry was the same then, as its writer shows. Returns None if the tables must be queried.
fn by_entry(key: &str, intent: Intent, keyspace: &str) -> Option<Rc<FoundEntry>> {
    let (strategy, key_type) = cache::keyspace(keyspace)?;
    let canonical = key_type.canonical(key);
    let EntryLookup::Named(name) = strategy.entry(&canonical) else { return None };
    let entry = current_entry::find(keyspace, &name).ok().flatten().filter(|entry| !entry.is_disabled)?;
    let shard = match intent {
        Intent::Read => entry.reads_from.as_ref().unwrap_or(&entry.read_shard),
        Intent::Write => &entry.write_shard,
    };
    let found = cache::of_shard(shard, intent, keyspace, entry.written_by)?;
    let key = if strategy.is_directory() { key } else { &canonical };
    cache::keep(CachedAnswer { keyspace, strategy, key_type, key, intent, span: None }, &found, None);
    Some(found)
}

/// Looks up a key's own route. A write waits while a split holds the key's writes back; each attempt has a new
/// snapshot. Returns None if there is no such keyspace.
fn find_routed(key: &str, intent: Intent, keyspace: &str) -> Result<Option<Rc<FoundEntry>>, Failure> {
    if intent == Intent::Write {
        after_start::wait(key)?;
    }
    if let Some(found) = by_entry(key, intent, keyspace) {
        return Ok(Some(found));
    }
    let mut held = HeldWrite::new();
    loop {
        let as_of = index_scan::oldest_running();
        let look = as_owner(|| look_canonical(key, intent, keyspace));
        let Some((canonical, look)) = look else { return Ok(None) };
        let RouteLook { strategy, key_type, found, span, same_for_all, is_outdated } = look;
        if is_outdated {
            as_owner(|| outdated::require_current(keyspace))?;
        }
        let Some(found) = found else {
            return Err(error::unknown_key(keyspace, &canonical));
        };
        if found.is_held(intent) {
            held.wait(&canonical, keyspace, found.version)?;
            continue;
        }
        found.require_enabled()?;
        let as_of = (same_for_all && !found.disabled).then_some(as_of);
        let found = Rc::new(found);
        let key = if strategy.is_directory() { key } else { &canonical };
        let answer = CachedAnswer { keyspace, strategy, key_type, key, intent, span };
        cache::keep(answer, &found, as_of);
        return Ok(Some(found));
    }
}
