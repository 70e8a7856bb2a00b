//! The rows of placement for a shard, when it is added, changed and dropped. Callers hold the shard's lock
//! exclusively.

use super::locks::{self, Mode};
use super::{error, free_slots, slot, tenants};
use crate::catalog::shard::{self, Shard, ShardStatus};
use crate::error::Failure;
use crate::server::sql;

/// The number of slots that are created before the first reservation.
const FIRST: i64 = 16;

/// Waits for open reservations on the shard; new ones wait for this transaction.
pub fn lock(shard_id: i64) {
    locks::shard(shard_id, Mode::Exclusive);
}

fn slots(capacity: Option<i64>) -> i64 {
    capacity.unwrap_or(free_slots::UNLIMITED)
}

/// Is for a caller that has changed nothing under the lock, and continues with another shard.
pub fn unlock(shard_id: i64) {
    locks::release_shard(shard_id, Mode::Exclusive);
}

/// Creates the first slots. Tenants need no slots on a shard without a capacity, so none are created there.
fn mint_first(shard: &Shard, capacity: Option<i64>) {
    if !shard.holds_rows() || capacity.is_some() {
        sql::write("SELECT 1 FROM shardmaster.shard WHERE id = $1 FOR NO KEY UPDATE", &[shard.id.into()]);
        slot::mint_up_to(shard.id, FIRST);
    }
}

pub fn added(shard: &Shard) {
    sql::write(
        "INSERT INTO shardmaster.shard_room (shard_id, kind, shard_key, is_open, room)
         VALUES ($1, $2, $3, true, $4)",
        &[
            shard.id.into(),
            shard.kind.as_str().into(),
            shard.shard_key.as_str().into(),
            slots(shard.capacity).into(),
        ],
    );
    mint_first(shard, shard.capacity);
}

pub fn status_changed(shard: &Shard, status: ShardStatus) {
    sql::write(
        "UPDATE shardmaster.shard_room SET is_open = $2 WHERE shard_id = $1",
        &[shard.id.into(), (status == ShardStatus::Active).into()],
    );
}

/// Sets the capacity. If it is below what is held, nothing is taken away, and nothing is added.
pub fn set_capacity(shard: &Shard, capacity: Option<i64>) -> Result<(), Failure> {
    shard::set_capacity(shard, capacity);
    free_slots::change(shard.id, &shard.kind, slots(capacity) - slots(shard.capacity), 0);
    if shard.holds_rows() && shard.capacity.is_none() && capacity.is_some() {
        tenants::take_for_all(shard)?;
    }
    mint_first(shard, capacity);
    Ok(())
}

/// Removes the shard's slots; their history stays in the archive.
pub fn dropped(shard: &Shard) -> Result<(), Failure> {
    let live = sql::read_one(
        "SELECT id FROM shardmaster.shard_reservation
          WHERE shard_id = $1 AND status IN ('pending', 'confirmed')
            AND (lease_expires_at IS NULL OR status = 'confirmed' OR lease_expires_at > clock_timestamp())
          ORDER BY id LIMIT 1",
        &[shard.id.into()],
        |row| row.value::<i64>(1),
    );
    if let Some(id) = live {
        return Err(error::shard_in_use(&shard.shard_key, id));
    }
    for query in [
        "UPDATE shardmaster.shard_reservation
            SET status = 'expired', ended_at = clock_timestamp(), updated_at = clock_timestamp()
          WHERE shard_id = $1 AND status = 'pending'",
        "WITH gone AS (DELETE FROM shardmaster.shard_reservation WHERE shard_id = $1 RETURNING *)
         INSERT INTO shardmaster.shard_reservation_archive SELECT * FROM gone",
        "DELETE FROM shardmaster.shard_slots WHERE shard_id = $1",
        "DELETE FROM shardmaster.shard_room_change WHERE shard_id = $1",
    ] {
        sql::write(query, &[shard.id.into()]);
    }
    Ok(())
}
