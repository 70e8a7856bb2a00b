//! Tenants take slots of servers with a capacity: a tenant that is routed to such a server holds a confirmed slot, and
//! a split reserves those that its tenants will need on the target.

use super::locks::{self, Mode};
use super::{error, free_slots, quota, settle, slot};
use crate::catalog::routing::RoutedEntries;
use crate::catalog::shard::{self, POSTGRES, Shard};
use crate::catalog::split_state::IS_UNDECIDED;
use crate::error::Failure;
use crate::server::sql;
use std::collections::BTreeMap;

/// Returns the logical key of a tenant's slot.
pub fn logical_key(keyspace: &str, key: &str) -> String {
    format!("{keyspace}/{key}")
}

/// Returns the logical key of the slot that a split keeps for a tenant, beside the one on the source.
fn split_key(split_id: i64, keyspace: &str, key: &str) -> String {
    format!("split {split_id}: {keyspace}/{key}")
}

/// Updates slots when routing changes: keys leave their shards and move to others. The caller holds the keyspace's
/// lock.
pub fn routed(
    keyspace: &str,
    old: &[String],
    new: RoutedEntries<'_>,
    split_id: Option<i64>,
) -> Result<(), Failure> {
    settle::release_confirmed(POSTGRES, old.iter().map(|key| logical_key(keyspace, key)).collect());
    if let Some(split_id) = split_id {
        confirm_for_split(split_id, keyspace);
    }
    // Keys that a split has moved are on the target already: each takes its slot, even beyond capacity and quota.
    let forced = split_id.is_some();
    let mut wanted = Vec::new();
    for (shard_key, keys) in new.by_shard() {
        let shard = shard::by_key(shard_key)?;
        if shard.capacity.is_some() {
            let missing = without_slot(keyspace, keys);
            if !forced {
                count_quotas(&missing)?;
            }
            wanted.push((shard, missing));
        }
    }
    // Quotas come before shards in the order of locks.
    for (shard, keys) in wanted {
        locks::shard(shard.id, Mode::Exclusive);
        take(&shard, keyspace, &keys, &SlotHolder::Tenant, forced)?;
    }
    Ok(())
}

fn without_slot(keyspace: &str, keys: Vec<String>) -> Vec<String> {
    sql::read_column(
        "SELECT k.key FROM unnest($2) k (key)
          WHERE NOT EXISTS (SELECT 1 FROM shardmaster.shard_reservation r
                             WHERE r.kind = $3 AND r.logical_key = $1 || '/' || k.key
                               AND r.status IN ('pending', 'confirmed'))",
        &[keyspace.into(), keys.into(), POSTGRES.into()],
    )
}

enum SlotHolder {
    Tenant,
    Split(i64),
}

/// Takes a slot of the shard for each key, for all of them or for none. The caller holds the shard's lock.
fn take(
    shard: &Shard,
    keyspace: &str,
    keys: &[String],
    holder: &SlotHolder,
    forced: bool,
) -> Result<(), Failure> {
    let wanted = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    if wanted == 0 {
        return Ok(());
    }
    if !forced {
        require_free_slots(shard, keys)?;
    }
    slot::mint_missing(shard.id, wanted);
    let (logical_keys, status, split_id): (Vec<String>, &str, Option<i64>) = match holder {
        SlotHolder::Tenant => (keys.iter().map(|k| logical_key(keyspace, k)).collect(), "confirmed", None),
        SlotHolder::Split(id) => {
            (keys.iter().map(|k| split_key(*id, keyspace, k)).collect(), "pending", Some(*id))
        }
    };
    sql::write(
        include_str!("../../sql/placement/take_many.sql"),
        &[
            shard.id.into(),
            shard.kind.as_str().into(),
            logical_keys.into(),
            keys.to_vec().into(),
            status.into(),
            split_id.into(),
        ],
    );
    free_slots::change(shard.id, &shard.kind, -wanted, 0);
    Ok(())
}

fn count_quotas(keys: &[String]) -> Result<(), Failure> {
    let with_quota = sql::read_column::<String>(
        "SELECT tenant_id FROM shardmaster.shard_quota WHERE kind = $1 AND tenant_id = ANY ($2) ORDER BY 1",
        &[POSTGRES.into(), keys.to_vec().into()],
    );
    with_quota.iter().try_for_each(|tenant| quota::take(tenant, POSTGRES))
}

/// Requires that the target has free slots for these keys, before a plan has a number. It locks the shard.
pub fn check_free_slots(target: &Shard, keys: &[String]) -> Result<(), Failure> {
    if target.capacity.is_none() {
        return Ok(());
    }
    locks::shard(target.id, Mode::Exclusive);
    require_free_slots(target, keys)
}

/// Requires that the target has free slots for these keys, without locking the shard, for a caller that only wants to
/// know.
pub fn look_for_free_slots(target: &Shard, keys: &[String]) -> Result<(), Failure> {
    if target.capacity.is_none() { Ok(()) } else { require_free_slots(target, keys) }
}

fn require_free_slots(shard: &Shard, keys: &[String]) -> Result<(), Failure> {
    let wanted = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    let free = free_slots::exact(shard.id);
    if free >= wanted {
        return Ok(());
    }
    Err(error::shard_full(&shard.shard_key, free.max(0), wanted))
}

/// Reserves free slots of the target for the split's keys, when the split is planned.
pub fn reserve_for_split(
    split_id: i64,
    target: &Shard,
    keyspace: &str,
    keys: &[String],
) -> Result<(), Failure> {
    reserve(split_id, target, keyspace, keys, false)
}

/// Reserves slots for a split that had them before, even beyond the free ones.
pub fn reserve_beyond_for_split(
    split_id: i64,
    target: &Shard,
    keyspace: &str,
    keys: &[String],
) -> Result<(), Failure> {
    reserve(split_id, target, keyspace, keys, true)
}

fn reserve(
    split_id: i64,
    target: &Shard,
    keyspace: &str,
    keys: &[String],
    beyond: bool,
) -> Result<(), Failure> {
    if target.capacity.is_none() {
        return Ok(());
    }
    locks::shard(target.id, Mode::Exclusive);
    take(target, keyspace, keys, &SlotHolder::Split(split_id), beyond)
}

/// Frees the target's slots, when the split is rolled back.
pub fn cancel_for_split(split_id: i64) {
    settle::cancel_of_split(split_id);
}

/// Makes the slots those of the tenants, when the split is decided.
fn confirm_for_split(split_id: i64, keyspace: &str) {
    sql::write(
        "WITH confirmed AS (
             UPDATE shardmaster.shard_reservation
                SET status = 'confirmed', logical_key = $2 || '/' || tenant_id, resource_id = $2 || '/' || tenant_id,
                    confirmed_at = clock_timestamp(), updated_at = clock_timestamp()
              WHERE split_id = $1 AND status = 'pending' RETURNING shard_id, slot_no, resource_id)
         UPDATE shardmaster.shard_slots s SET resource_id = c.resource_id
           FROM confirmed c WHERE s.shard_id = c.shard_id AND s.slot_no = c.slot_no",
        &[split_id.into(), keyspace.into()],
    );
}

/// Gives a slot to each tenant that is on the shard, or moving to it, when the shard gets its first capacity, even
/// beyond that capacity. The caller holds the locks of all keyspaces and of the shard.
pub fn take_for_all(shard: &Shard) -> Result<(), Failure> {
    let routed = sql::read(
        "SELECT keyspace, key FROM shardmaster.routing_entry e
          WHERE valid_to IS NULL AND bucket IS NULL AND span IS NULL AND read_shard = $1
            AND NOT EXISTS (SELECT 1 FROM shardmaster.shard_reservation r
                             WHERE r.kind = $2 AND r.logical_key = e.keyspace || '/' || e.key
                               AND r.status IN ('pending', 'confirmed'))",
        &[shard.shard_key.as_str().into(), POSTGRES.into()],
        |row| (row.value::<String>(1), row.value::<String>(2)),
    );
    let mut by_keyspace: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (keyspace, key) in routed {
        by_keyspace.entry(keyspace).or_default().push(key);
    }
    for (keyspace, keys) in by_keyspace {
        take(shard, &keyspace, &keys, &SlotHolder::Tenant, true)?;
    }
    let splits = sql::read(
        &format!(
            "SELECT id, keyspace, tenants FROM shardmaster.split_plan p
              WHERE target_shard = $1 AND {IS_UNDECIDED}
                AND keyspace IN (SELECT name FROM shardmaster.keyspace WHERE strategy = 'directory')
                AND NOT EXISTS (SELECT 1 FROM shardmaster.shard_reservation r
                                 WHERE r.split_id = p.id AND r.status = 'pending')"
        ),
        &[shard.shard_key.as_str().into()],
        |row| (row.value::<i64>(1), row.value::<String>(2), row.value::<Vec<String>>(3)),
    );
    for (id, keyspace, keys) in splits {
        take(shard, &keyspace, &keys, &SlotHolder::Split(id), true)?;
    }
    Ok(())
}
