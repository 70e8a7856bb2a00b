//! Rows of `shardmaster.lookup_entry` and `lookup_conflict`: pairs of keys and owners. The first owner of a key has
//! it; pairs of other owners are kept as conflicts, and take its place when it goes.

use super::lookup::Lookup;
use crate::server::sql::{self, Prepared};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;
use std::collections::BTreeSet;

/// A key and an owner, both in their canonical forms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookupPair {
    pub key: String,
    pub owner: String,
}

thread_local! {
    static OWNER: Prepared = const { Prepared::new(
        "SELECT l.of_keyspace, l.key_type, e.owner, e.has_row
           FROM shardmaster.lookup l
           LEFT JOIN shardmaster.lookup_entry e
                  ON e.lookup = l.name AND e.key = $2
          WHERE l.name = $1",
        &[pg_sys::TEXTOID, pg_sys::TEXTOID],
    ) };
}

/// What a lookup index knows of a key.
pub struct KnownKey {
    pub of: String,
    pub key_type: String,
    pub owner: Option<String>,
    /// The key has a row; it is not only claimed.
    pub has_row: bool,
}

/// Returns what the lookup index knows of a key. Returns None if there is no lookup index of this name.
pub fn owner(lookup: &str, key: &str) -> Option<KnownKey> {
    sql::read_one_prepared(&OWNER, &[lookup.into(), key.into()], |row| KnownKey {
        of: row.value(1),
        key_type: row.value(2),
        owner: row.get(3),
        has_row: row.get(4).unwrap_or(false),
    })
}

fn columns(pairs: &[&LookupPair]) -> (Vec<String>, Vec<String>) {
    pairs.iter().map(|pair| (pair.key.clone(), pair.owner.clone())).unzip()
}

/// Records that these pairs have a row. Several owners may have a row of one key. A pair that is known already costs
/// nothing. A claim is fulfilled, unless it was made although the row existed.
pub fn set(lookup: &Lookup, pairs: &BTreeSet<&LookupPair>) {
    let mut left: Vec<&LookupPair> = pairs.iter().copied().collect();
    while !left.is_empty() {
        // One statement cannot change a row twice.
        let mut keys = BTreeSet::new();
        let (now, later): (Vec<&LookupPair>, Vec<&LookupPair>) =
            left.into_iter().partition(|pair| keys.insert(pair.key.as_str()));
        set_distinct(lookup, &now);
        left = later;
    }
}

fn set_distinct(lookup: &Lookup, pairs: &[&LookupPair]) {
    let (keys, owners) = columns(pairs);
    sql::write(
        "WITH wanted AS (
             SELECT w.key, w.owner FROM unnest($2::text[], $3::text[]) AS w (key, owner)
              WHERE NOT EXISTS (SELECT FROM shardmaster.lookup_entry e
                                 WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.has_row AND e.epoch = $4)
         ), put AS (
             INSERT INTO shardmaster.lookup_entry AS e (lookup, key, owner, has_row, epoch)
             SELECT $1, w.key, w.owner, true, $4 FROM wanted w ORDER BY w.key
             ON CONFLICT (key, lookup) DO UPDATE SET owner = excluded.owner, has_row = true, epoch = $4, claimed_until = CASE WHEN e.has_row THEN e.claimed_until END
              WHERE e.owner = excluded.owner
             RETURNING e.key
         )
         INSERT INTO shardmaster.lookup_conflict (lookup, key, owner, epoch)
         SELECT $1, w.key, w.owner, $4 FROM wanted w WHERE w.key NOT IN (SELECT p.key FROM put p)
         ON CONFLICT (key, lookup, owner) DO UPDATE SET epoch = $4",
        &[lookup.name.as_str().into(), keys.into(), owners.into(), lookup.epoch.into()],
    );
}

/// Records that these pairs had no row when their shards were asked, which was not before `asked`. A claim that has
/// had no row yet, or was made although a row existed, stays until its shard is asked after the lease's end.
pub fn unset(lookup: &Lookup, pairs: &[&LookupPair], asked: TimestampWithTimeZone) {
    if pairs.is_empty() {
        return;
    }
    let (keys, owners) = columns(pairs);
    let name = lookup.name.as_str();
    sql::write(
        "DELETE FROM shardmaster.lookup_conflict c USING unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE c.lookup = $1 AND c.key = w.key AND c.owner = w.owner",
        &[name.into(), keys.clone().into(), owners.clone().into()],
    );
    sql::write(
        "UPDATE shardmaster.lookup_entry e SET has_row = false FROM unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.has_row AND e.claimed_until > $4",
        &[name.into(), keys.clone().into(), owners.clone().into(), asked.into()],
    );
    let gone = sql::write_returning(
        "DELETE FROM shardmaster.lookup_entry e USING unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner
            AND (e.claimed_until IS NULL OR e.claimed_until <= $4)
        RETURNING e.key",
        &[name.into(), keys.into(), owners.into(), asked.into()],
        |row| row.value(1),
    );
    promote(name, gone);
}

/// Returns claims whose leases have ended and for which no row is known, from behind a key on. They remain their
/// owners' until the owner's shard has been asked: a row that no worker has seen may have been committed within the
/// lease.
pub fn ended_claims(lookup: &str, after: Option<&str>, most: i64) -> Vec<LookupPair> {
    sql::read(
        "SELECT e.key, e.owner FROM shardmaster.lookup_entry e
          WHERE e.lookup = $1 AND NOT e.has_row AND e.claimed_until <= clock_timestamp() AND ($2 IS NULL OR e.key COLLATE \"C\" > $2)
          ORDER BY e.key COLLATE \"C\" LIMIT $3",
        &[lookup.into(), after.into(), most.into()],
        |row| LookupPair { key: row.value(1), owner: row.value(2) },
    )
}

/// Gives keys that no owner has any more to the next owner in their conflicts.
fn promote(lookup: &str, keys: Vec<String>) {
    if keys.is_empty() {
        return;
    }
    sql::write(
        "INSERT INTO shardmaster.lookup_entry (lookup, key, owner, has_row, epoch)
         SELECT DISTINCT ON (c.key) c.lookup, c.key, c.owner, true, c.epoch
           FROM shardmaster.lookup_conflict c WHERE c.lookup = $1 AND c.key = ANY ($2) ORDER BY c.key, c.found_at, c.owner
         ON CONFLICT DO NOTHING",
        &[lookup.into(), keys.clone().into()],
    );
    sql::write(
        "DELETE FROM shardmaster.lookup_conflict c USING shardmaster.lookup_entry e
          WHERE c.lookup = $1 AND c.key = ANY ($2) AND (e.lookup, e.key, e.owner) = (c.lookup, c.key, c.owner)",
        &[lookup.into(), keys.into()],
    );
}

/// Returns keys of an owner, from behind a key on, including those that are only claimed and those in conflicts.
pub fn of_owner(lookup: &str, owner: &str, after: Option<&str>, most: i64) -> Vec<String> {
    sql::read_column(
        "SELECT p.key FROM (
             (SELECT e.key COLLATE \"C\" AS key FROM shardmaster.lookup_entry e
               WHERE e.lookup = $1 AND e.owner = $2 AND ($3 IS NULL OR e.key COLLATE \"C\" > $3)
               ORDER BY e.key COLLATE \"C\" LIMIT $4)
             UNION
             (SELECT c.key COLLATE \"C\" FROM shardmaster.lookup_conflict c
               WHERE c.lookup = $1 AND c.owner = $2 AND ($3 IS NULL OR c.key COLLATE \"C\" > $3)
               ORDER BY c.key COLLATE \"C\" LIMIT $4)) AS p
          ORDER BY p.key LIMIT $4",
        &[lookup.into(), owner.into(), after.into(), most.into()],
    )
}

/// Returns pairs that were not checked since the epoch began, from behind a pair on.
pub fn older(lookup: &Lookup, after: Option<&LookupPair>, most: i64) -> Vec<LookupPair> {
    let (key, owner) = after.map(|pair| (pair.key.clone(), pair.owner.clone())).unzip();
    sql::read(
        "SELECT p.key, p.owner FROM (
             (SELECT e.key, e.owner FROM shardmaster.lookup_entry e
               WHERE e.lookup = $1 AND e.epoch < $2 AND ($3 IS NULL OR e.key >= $3 AND (e.key, e.owner) > ($3, $5))
               ORDER BY e.key LIMIT $4)
             UNION
             (SELECT c.key, c.owner FROM shardmaster.lookup_conflict c
               WHERE c.lookup = $1 AND c.epoch < $2 AND ($3 IS NULL OR c.key >= $3 AND (c.key, c.owner) > ($3, $5))
               ORDER BY c.key, c.owner LIMIT $4)) AS p
          ORDER BY p.key, p.owner LIMIT $4",
        &[lookup.name.as_str().into(), lookup.epoch.into(), key.into(), most.into(), owner.into()],
        |row| LookupPair { key: row.value(1), owner: row.value(2) },
    )
}

/// Marks pairs as checked that stay as they are in this epoch: claims without a row.
pub fn looked_at(lookup: &Lookup, pairs: &[&LookupPair]) {
    let (keys, owners) = columns(pairs);
    sql::write(
        "UPDATE shardmaster.lookup_entry e SET epoch = $4 FROM unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.epoch < $4",
        &[lookup.name.as_str().into(), keys.into(), owners.into(), lookup.epoch.into()],
    );
}

/// Claims a key for an owner and returns the end of the lease. Returns None if its row existed at the last read; the
/// claim is kept all the same, since the row may be gone since. If another owner has a row, which waits for the end of
/// a claim, no claim is made or prolonged.
pub fn claim(
    lookup: &Lookup,
    pair: &LookupPair,
    seconds: f64,
) -> Result<Option<TimestampWithTimeZone>, ClaimRefusal> {
    let args = [
        lookup.name.as_str().into(),
        pair.key.as_str().into(),
        pair.owner.as_str().into(),
        seconds.into(),
        lookup.epoch.into(),
    ];
    let claimed = sql::write_one(
        "INSERT INTO shardmaster.lookup_entry AS e (lookup, key, owner, has_row, claimed_until, epoch)
         VALUES ($1, $2, $3, false, clock_timestamp() + make_interval(secs => $4), $5)
         ON CONFLICT (key, lookup) DO UPDATE
            SET claimed_until = greatest(e.claimed_until, excluded.claimed_until)
          WHERE e.owner = excluded.owner
            AND (e.has_row OR NOT EXISTS (SELECT FROM shardmaster.lookup_conflict c
                                           WHERE c.lookup = e.lookup AND c.key = e.key AND c.owner <> excluded.owner))
         RETURNING CASE WHEN NOT e.has_row THEN e.claimed_until END",
        &args,
        |row| row.get::<TimestampWithTimeZone>(1),
    );
    claimed.ok_or_else(|| taken(lookup, pair))
}

/// Why a key cannot be claimed.
pub enum ClaimRefusal {
    /// The key is another owner's.
    Owned,
    /// This owner's lease has ended, and its shard has not been asked for the row since.
    Ended { owner: String },
}

fn taken(lookup: &Lookup, pair: &LookupPair) -> ClaimRefusal {
    let ended = sql::read_one_latest(
        "SELECT e.owner FROM shardmaster.lookup_entry e
          WHERE e.lookup = $1 AND e.key = $2 AND e.owner <> $3 AND NOT e.has_row AND e.claimed_until <= clock_timestamp()",
        &[lookup.name.as_str().into(), pair.key.as_str().into(), pair.owner.as_str().into()],
        |row| row.value(1),
    );
    ended.map_or(ClaimRefusal::Owned, |owner| ClaimRefusal::Ended { owner })
}

/// A key that more than one owner has: an owner that does not have it in routing, and the owner that does.
pub struct Conflict {
    pub key: String,
    pub owner: String,
    pub routed_to: Option<String>,
    pub found_at: TimestampWithTimeZone,
}

pub fn conflicts(lookup: &str) -> Vec<Conflict> {
    sql::read(
        "SELECT c.key, c.owner, e.owner, c.found_at
           FROM shardmaster.lookup_conflict c LEFT JOIN shardmaster.lookup_entry e ON e.lookup = c.lookup AND e.key = c.key
          WHERE c.lookup = $1 ORDER BY c.key COLLATE \"C\", c.found_at, c.owner COLLATE \"C\"",
        &[lookup.into()],
        |row| Conflict { key: row.value(1), owner: row.value(2), routed_to: row.get(3), found_at: row.value(4) },
    )
}
