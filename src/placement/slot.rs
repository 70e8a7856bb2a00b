//! The slots of a shard: takes free ones, and creates new ones.

use super::choose::Choice;
use super::locks::{self, Mode};
use super::{free_slots, scatter};
use crate::server::sql::{self, Prepared};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

/// The least and the greatest number of slots created at a time; within these, as many as exist.
const BATCH: (i64, i64) = (16, 256);
/// New slots are created ahead if fewer are free than a quarter of all, within these limits.
const LOW: (i64, i64) = (4, 64);

/// What is requested, and for whom.
pub struct SlotRequest<'a> {
    pub kind: &'a str,
    pub key: &'a str,
    pub tenant: &'a str,
    pub lease_seconds: f64,
}

/// A reservation that was just made.
pub struct Claimed {
    pub id: i64,
    pub shard_key: String,
    pub slot_no: i64,
    pub lease_expires_at: Option<TimestampWithTimeZone>,
}

macro_rules! reserve {
    ($on_conflict:literal) => {
        concat!(
            "INSERT INTO shardmaster.shard_reservation
                    (kind, logical_key, tenant_id, shard_id, slot_no, lease_expires_at)
             VALUES ($1, $2, $3, $4, $5, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $6)) ",
            $on_conflict,
            " RETURNING id, lease_expires_at"
        )
    };
}

const RESERVE_TYPES: &[pg_sys::Oid] =
    &[pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::INT8OID, pg_sys::INT8OID, pg_sys::FLOAT8OID];

thread_local! {
    static FIND: Prepared = const {
        Prepared::new(
            include_str!("../../sql/placement/claim.sql"),
            &[pg_sys::INT8OID, pg_sys::INT8OID, pg_sys::FLOAT8OID, pg_sys::BOOLOID],
        )
    };
    static RESERVE: Prepared = const { Prepared::new(reserve!(""), RESERVE_TYPES) };
    static RESERVE_IF_SEEN: Prepared = const {
        Prepared::new(
            reserve!("ON CONFLICT (kind, logical_key) WHERE status IN ('pending', 'confirmed') DO NOTHING"),
            RESERVE_TYPES,
        )
    };
    static TAKE: Prepared = const {
        Prepared::new(
            "UPDATE shardmaster.shard_slots
                SET reservation_id = $3, tenant_id = $4, fresh_no = NULL, returned_no = NULL
              WHERE shard_id = $1 AND slot_no = $2",
            &[pg_sys::INT8OID, pg_sys::INT8OID, pg_sys::INT8OID, pg_sys::TEXTOID],
        )
    };
}

/// What a search on a shard has found.
struct SlotLook {
    next_slot: i64,
    capacity: Option<i64>,
    /// The free slots by the shard's count; `None` if it was not read.
    free: Option<i64>,
    /// Whether there are more slots than may be used, so that none was searched (see `claim_counted`).
    to_be_counted: bool,
    claimed: Option<Claimed>,
}

/// Where a slot is searched for.
#[derive(Clone, Copy)]
enum Where {
    /// Among the last slots, as many as are free by the shard's count.
    Fresh(i64),
    Everywhere,
    /// Everywhere, after the caller has counted.
    Counted,
}

/// Returns None if the shard is not open.
fn try_claim(shard_id: i64, request: &SlotRequest<'_>, at: Where) -> Option<SlotLook> {
    let (free, part) = match at {
        // Sessions that take slots of one shard at the same time start at different places; otherwise each would pass
        // over all slots that the others are taking.
        Where::Fresh(free) if free_slots::is_contended() => (Some(free), scatter::next() * 0.5),
        Where::Fresh(free) => (Some(free), 0.0),
        Where::Everywhere | Where::Counted => (None, 0.0),
    };
    let args = [shard_id.into(), free.into(), part.into(), matches!(at, Where::Counted).into()];
    let (mut look, shard_key, found) = sql::write_one_prepared(&FIND, &args, |row| {
        let look = SlotLook {
            next_slot: row.value(2),
            capacity: row.get(3),
            free: row.get(4),
            to_be_counted: row.value(5),
            claimed: None,
        };
        (look, row.value::<String>(1), row.get::<i64>(6))
    })?;
    look.claimed = found.map(|slot_no| take(shard_id, shard_key, slot_no, request));
    Some(look)
}

/// Takes a slot that is locked.
fn take(shard_id: i64, shard_key: String, slot_no: i64, request: &SlotRequest<'_>) -> Claimed {
    let args = [
        request.kind.into(),
        request.key.into(),
        request.tenant.into(),
        shard_id.into(),
        slot_no.into(),
        request.lease_seconds.into(),
    ];
    // A snapshot from before the key was reserved does not see the reservation. The server then raises 40001 if the
    // statement has a clause for conflicts, and 23505 if not.
    let query = if sql::keeps_its_snapshot() { &RESERVE_IF_SEEN } else { &RESERVE };
    let made = sql::write_one_prepared(query, &args, |row| (row.value::<i64>(1), row.get(2)));
    let (id, lease_expires_at) = made.unwrap_or_default();
    let args = [shard_id.into(), slot_no.into(), id.into(), request.tenant.into()];
    sql::write_prepared(&TAKE, &args, |_| ());
    Claimed { id, shard_key, slot_no, lease_expires_at }
}

/// Takes a slot of the shard. Returns None if the shard is not open, or if every slot is taken or being taken; the
/// shard is not locked then.
pub fn claim(choice: &Choice, request: &SlotRequest<'_>) -> Option<Claimed> {
    locks::shard(choice.shard_id, Mode::Shared);
    match claim_one(choice, request) {
        Claim::Taken(claimed) => Some(claimed),
        Claim::Nothing => {
            locks::release_shard(choice.shard_id, Mode::Shared);
            None
        }
        Claim::ToBeCounted => {
            locks::release_shard(choice.shard_id, Mode::Shared);
            claim_counted(choice.shard_id, request)
        }
    }
}

enum Claim {
    Taken(Claimed),
    Nothing,
    ToBeCounted,
}

fn claim_one(choice: &Choice, request: &SlotRequest<'_>) -> Claim {
    let shard_id = choice.shard_id;
    loop {
        let Some(look) = try_claim(shard_id, request, Where::Fresh(choice.free)) else {
            return Claim::Nothing;
        };
        if look.to_be_counted {
            return Claim::ToBeCounted;
        }
        if let Some(claimed) = look.claimed {
            mint_ahead(shard_id, look.next_slot, look.free.unwrap_or(i64::MAX));
            return Claim::Taken(claimed);
        }
        // Slots that were returned by a transaction's rollback may be anywhere.
        let Some(anywhere) = try_claim(shard_id, request, Where::Everywhere) else {
            return Claim::Nothing;
        };
        if let Some(claimed) = anywhere.claimed {
            return Claim::Taken(claimed);
        }
        if anywhere.capacity.is_some_and(|capacity| anywhere.next_slot >= capacity) {
            return Claim::Nothing;
        }
        mint_now(shard_id, anywhere.next_slot);
    }
}

/// Claims a slot after the capacity was lowered below the number of slots: more slots may be free than may be used.
/// Sessions come one after the other here, and count.
fn claim_counted(shard_id: i64, request: &SlotRequest<'_>) -> Option<Claimed> {
    locks::shard(shard_id, Mode::Exclusive);
    let claimed = if free_slots::exact(shard_id) > 0 {
        try_claim(shard_id, request, Where::Counted).and_then(|look| look.claimed)
    } else {
        None
    };
    if claimed.is_none() {
        locks::release_shard(shard_id, Mode::Exclusive);
    }
    claimed
}

/// Creates slots when none is free, or waits for the session that is creating them. Either way, there are new slots to
/// search.
fn mint_now(shard_id: i64, seen: i64) {
    let next = sql::write_one(
        "SELECT next_slot FROM shardmaster.shard WHERE id = $1 FOR NO KEY UPDATE",
        &[shard_id.into()],
        |row| row.value::<i64>(1),
    );
    if next == Some(seen) {
        mint(shard_id, seen.clamp(BATCH.0, BATCH.1));
    }
}

/// Creates slots before the last free one is gone, so that nobody has to wait for the commit of the session that
/// creates them.
fn mint_ahead(shard_id: i64, next_slot: i64, free: i64) {
    if free > (next_slot / 4).clamp(LOW.0, LOW.1) {
        return;
    }
    if sql::keeps_its_snapshot() {
        return;
    }
    let locked = sql::write_one(
        "SELECT next_slot FROM shardmaster.shard WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED",
        &[shard_id.into()],
        |row| row.value::<i64>(1),
    );
    if locked == Some(next_slot) {
        mint(shard_id, next_slot.clamp(BATCH.0, BATCH.1));
    }
}

/// Creates slots up to the capacity. The caller has locked the shard's row.
fn mint(shard_id: i64, count: i64) {
    sql::write(
        "WITH old AS (SELECT id, next_slot,
                             least(next_slot + $2, greatest(coalesce(capacity, next_slot + $2), next_slot)) AS until
                        FROM shardmaster.shard WHERE id = $1),
              new AS (INSERT INTO shardmaster.shard_slots (shard_id, slot_no, fresh_no)
                      SELECT id, n, n FROM old, generate_series(next_slot, until - 1) n)
         UPDATE shardmaster.shard s SET next_slot = old.until
           FROM old WHERE s.id = old.id AND old.until > s.next_slot",
        &[shard_id.into(), count.into()],
    );
}

/// Creates slots until there are this many, used or not.
pub fn mint_up_to(shard_id: i64, count: i64) {
    let next =
        sql::read_one("SELECT next_slot FROM shardmaster.shard WHERE id = $1", &[shard_id.into()], |row| {
            row.value::<i64>(1)
        });
    if let Some(missing) = next.map(|next| count - next).filter(|missing| *missing > 0) {
        mint(shard_id, missing);
    }
}

/// Creates slots until this many are free, even beyond the capacity. The caller holds the shard's lock.
pub fn mint_missing(shard_id: i64, wanted: i64) {
    sql::write(
        "WITH free AS (SELECT count(*) AS slots
                         FROM (SELECT 1 FROM shardmaster.shard_slots
                                WHERE shard_id = $1 AND reservation_id IS NULL LIMIT $2) f),
              old AS (SELECT s.id, s.next_slot, $2 - free.slots AS missing FROM shardmaster.shard s, free
                       WHERE s.id = $1 AND free.slots < $2),
              new AS (INSERT INTO shardmaster.shard_slots (shard_id, slot_no, fresh_no)
                      SELECT id, n, n FROM old, generate_series(next_slot, next_slot + missing - 1) n)
         UPDATE shardmaster.shard s SET next_slot = s.next_slot + old.missing FROM old WHERE s.id = old.id",
        &[shard_id.into(), wanted.into()],
    );
}
