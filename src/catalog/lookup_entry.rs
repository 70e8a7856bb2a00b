//! Rows of `shardmaster.lookup_entry` and `lookup_conflict`: pairs of keys and owners. The first owner of a key has it; what
//! others have is kept beside it, and takes its place when it goes.

use super::lookup::Lookup;
use crate::error::{Failure, SqlState};
use crate::server::sql::{self, Prepared};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;
use std::collections::BTreeSet;

/// A key and an owner, both in their canonical forms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub key: String,
    pub owner: String,
}

thread_local! {
    static OWNER: Prepared = const { Prepared::new(
        "SELECT l.of_keyspace, l.key_type, e.owner, e.has_row
           FROM shardmaster.lookup l
           LEFT JOIN shardmaster.lookup_entry e
                  ON e.lookup = l.name AND e.key = $2 AND (e.has_row OR e.claimed_until > pg_catalog.clock_timestamp())
          WHERE l.name = $1",
        &[pg_sys::TEXTOID, pg_sys::TEXTOID],
    ) };
}

/// What a look-up knows of a key.
pub struct Known {
    pub of: String,
    pub key_type: String,
    pub owner: Option<String>,
    /// It has a row, and is not claimed alone.
    pub has_row: bool,
}

/// None: there is no look-up of this name.
pub fn owner(lookup: &str, key: &str) -> Option<Known> {
    let known = sql::read_prepared(&OWNER, &[lookup.into(), key.into()], |row| Known {
        of: row.value(1),
        key_type: row.value(2),
        owner: row.get(3),
        has_row: row.get(4).unwrap_or(false),
    });
    known.into_iter().next()
}

fn columns(pairs: &[&Pair]) -> (Vec<String>, Vec<String>) {
    pairs.iter().map(|pair| (pair.key.clone(), pair.owner.clone())).unzip()
}

/// These have a row. Of one key several may have. What is known already costs nothing; a claim is fulfilled, but not one that
/// was made beside the row.
pub fn set(lookup: &Lookup, pairs: &BTreeSet<&Pair>) {
    let mut left: Vec<&Pair> = pairs.iter().copied().collect();
    while !left.is_empty() {
        // One statement cannot change a row twice.
        let mut keys = BTreeSet::new();
        let (now, later): (Vec<&Pair>, Vec<&Pair>) =
            left.into_iter().partition(|pair| keys.insert(pair.key.as_str()));
        set_distinct(lookup, &now);
        left = later;
    }
}

fn set_distinct(lookup: &Lookup, pairs: &[&Pair]) {
    let (keys, owners) = columns(pairs);
    end_claims_of(&lookup.name, &keys);
    sql::write(
        "WITH wanted AS (
             SELECT w.key, w.owner FROM unnest($2::text[], $3::text[]) AS w (key, owner)
              WHERE NOT EXISTS (SELECT FROM shardmaster.lookup_entry e
                                 WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.has_row AND e.epoch = $4)
         ), put AS (
             INSERT INTO shardmaster.lookup_entry AS e (lookup, key, owner, has_row, epoch)
             SELECT $1, w.key, w.owner, true, $4 FROM wanted w ORDER BY w.key
             ON CONFLICT (key, lookup) DO UPDATE SET owner = excluded.owner, has_row = true, epoch = $4, claimed_until = CASE WHEN e.has_row THEN e.claimed_until END
              WHERE e.owner = excluded.owner OR NOT e.has_row AND e.claimed_until <= clock_timestamp()
             RETURNING e.key
         )
         INSERT INTO shardmaster.lookup_conflict (lookup, key, owner, epoch)
         SELECT $1, w.key, w.owner, $4 FROM wanted w WHERE w.key NOT IN (SELECT p.key FROM put p)
         ON CONFLICT (key, lookup, owner) DO UPDATE SET epoch = $4",
        &[lookup.name.as_str().into(), keys.into(), owners.into(), lookup.epoch.into()],
    );
}

/// These have no row. What is claimed, and has had none yet or was claimed beside it, stays until the claim ends.
pub fn unset(lookup: &Lookup, pairs: &[&Pair]) {
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
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.has_row AND e.claimed_until > clock_timestamp()",
        &[name.into(), keys.clone().into(), owners.clone().into()],
    );
    let gone = sql::write_returning(
        "DELETE FROM shardmaster.lookup_entry e USING unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner
            AND (e.claimed_until IS NULL OR e.claimed_until <= clock_timestamp())
        RETURNING e.key",
        &[name.into(), keys.into(), owners.into()],
        |row| row.value(1),
    );
    promote(name, gone);
}

/// Whether claims have come to nothing.
pub fn has_ended_claims(lookup: &Lookup) -> bool {
    sql::read_one_again(
        "SELECT true FROM shardmaster.lookup_entry e
          WHERE e.lookup = $1 AND NOT e.has_row AND e.claimed_until <= clock_timestamp() LIMIT 1",
        &[lookup.name.as_str().into()],
        |_| (),
    )
    .is_some()
}

/// Ends claims that came to nothing; how many.
pub fn end_claims(lookup: &Lookup, most: i64) -> usize {
    let gone: Vec<String> = sql::write_returning(
        "DELETE FROM shardmaster.lookup_entry e
          WHERE e.lookup = $1 AND NOT e.has_row AND e.claimed_until <= clock_timestamp()
            AND e.key IN (SELECT i.key FROM shardmaster.lookup_entry i
                           WHERE i.lookup = $1 AND NOT i.has_row AND i.claimed_until <= clock_timestamp()
                           LIMIT $2 FOR UPDATE SKIP LOCKED)
        RETURNING e.key",
        &[lookup.name.as_str().into(), most.into()],
        |row| row.value(1),
    );
    let count = gone.len();
    promote(&lookup.name, gone);
    count
}

/// Ends those of these keys: whoever has waited for such an end is before others.
fn end_claims_of(lookup: &str, keys: &[String]) {
    let gone = sql::write_returning(
        "DELETE FROM shardmaster.lookup_entry e
          WHERE e.lookup = $1 AND e.key = ANY ($2) AND NOT e.has_row AND e.claimed_until <= clock_timestamp()
        RETURNING e.key",
        &[lookup.into(), keys.to_vec().into()],
        |row| row.value(1),
    );
    promote(lookup, gone);
}

/// Keys that nobody has any more go to who has had them next.
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

/// Keys of an owner, from behind a key on; those that were claimed alone, and those in conflicts, too.
pub fn of_owner(lookup: &str, owner: &str, after: Option<&str>, most: i64) -> Vec<String> {
    sql::read(
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
        |row| row.value(1),
    )
}

/// Pairs that nobody has looked at since an epoch began, from behind a pair on.
pub fn older(lookup: &Lookup, after: Option<&Pair>, most: i64) -> Vec<Pair> {
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
        |row| Pair { key: row.value(1), owner: row.value(2) },
    )
}

/// Pairs that stay as they are in this epoch: claims without a row.
pub fn looked_at(lookup: &Lookup, pairs: &[&Pair]) {
    let (keys, owners) = columns(pairs);
    sql::write(
        "UPDATE shardmaster.lookup_entry e SET epoch = $4 FROM unnest($2::text[], $3::text[]) AS w (key, owner)
          WHERE e.lookup = $1 AND e.key = w.key AND e.owner = w.owner AND e.epoch < $4",
        &[lookup.name.as_str().into(), keys.into(), owners.into(), lookup.epoch.into()],
    );
}

/// Claims a key for an owner; until when. None: its row is there already, as of the last look; the claim is kept beside it
/// all the same, since the row may have gone since. Where another owner has a row, which waits for the end of a claim, none is
/// made or prolonged.
pub fn claim(lookup: &Lookup, pair: &Pair, seconds: f64) -> Result<Option<TimestampWithTimeZone>, Failure> {
    end_claims_of(&lookup.name, std::slice::from_ref(&pair.key));
    let args = [
        lookup.name.as_str().into(),
        pair.key.as_str().into(),
        pair.owner.as_str().into(),
        seconds.into(),
        lookup.epoch.into(),
    ];
    let claimed = sql::write_returning(
        "INSERT INTO shardmaster.lookup_entry AS e (lookup, key, owner, has_row, claimed_until, epoch)
         VALUES ($1, $2, $3, false, clock_timestamp() + make_interval(secs => $4), $5)
         ON CONFLICT (key, lookup) DO UPDATE
            SET owner = excluded.owner,
                claimed_until = CASE WHEN e.owner = excluded.owner
                                     THEN greatest(e.claimed_until, excluded.claimed_until) ELSE excluded.claimed_until END
          WHERE e.owner = excluded.owner AND e.has_row
             OR (e.owner = excluded.owner OR NOT e.has_row AND e.claimed_until <= clock_timestamp())
                AND NOT EXISTS (SELECT FROM shardmaster.lookup_conflict c
                                 WHERE c.lookup = e.lookup AND c.key = e.key AND c.owner <> excluded.owner)
         RETURNING CASE WHEN NOT e.has_row THEN e.claimed_until END",
        &args,
        |row| row.get::<TimestampWithTimeZone>(1),
    );
    claimed.into_iter().next().ok_or_else(|| {
        let text = format!("key \"{}\" of look-up \"{}\" is another owner's", pair.key, lookup.name);
        Failure::new(SqlState(*b"23505"), text)
            .hint("shard_lookup() says whose it is, and shard_lookup_conflicts() who else has it.")
    })
}

/// A key that more than one owner has: an owner that does not have it in routing, and who has.
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
