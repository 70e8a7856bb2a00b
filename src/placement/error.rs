//! The errors of placement, as callers see them. Those with a SQLSTATE of this extension have a detail for programs.

use crate::error::{Failure, SqlState};
use serde_json::json;

/// Each list has some names of the kind's shards with that status.
pub fn no_capacity(kind: &str, full: &[String], draining: &[String], disabled: &[String]) -> Failure {
    let hint = if full.is_empty() && draining.is_empty() && disabled.is_empty() {
        "There is no shard of this kind. Add one with shard_add()."
    } else {
        "shard_capacity() shows how full each shard is. Add a shard, raise a capacity with shard_set_capacity(), free slots, or activate a shard with shard_set_status()."
    };
    let detail = json!({ "kind": kind, "full": full, "draining": draining, "disabled": disabled });
    Failure::new(SqlState::NO_CAPACITY, format!("no shard of kind \"{kind}\" has free capacity"))
        .detail(detail.to_string())
        .hint(hint)
}

pub fn shard_full(shard: &str, free: i64, wanted: i64) -> Failure {
    let detail = json!({ "shard": shard, "room": free, "wanted": wanted });
    let message = format!("shard \"{shard}\" has room for {free} of {wanted} keys");
    Failure::new(SqlState::NO_CAPACITY, message)
        .detail(detail.to_string())
        .hint("Choose another shard, or raise the capacity with shard_set_capacity().")
}

pub fn quota_used_up(tenant: &str, kind: &str, held: i64, quota: i64) -> Failure {
    let detail = json!({ "tenant": tenant, "kind": kind, "held": held, "quota": quota });
    let message =
        format!("quota of tenant \"{tenant}\" for kind \"{kind}\" is used up: {held} of {quota} slots");
    Failure::new(SqlState::QUOTA_EXCEEDED, message)
        .detail(detail.to_string())
        .hint("Free slots of the tenant with shard_free_slot(), or raise its quota with shard_set_quota().")
}

/// The reason continues a sentence that begins with the reservation.
pub fn not_live(id: i64, reason: &str) -> Failure {
    let detail = json!({ "reservation_id": id, "reason": reason });
    Failure::new(SqlState::NOT_RESERVED, format!("reservation {id} {reason}"))
        .detail(detail.to_string())
        .hint("Reserve the key again with shard_reserve_slot().")
}

pub fn key_of_another_tenant(kind: &str, key: &str) -> Failure {
    let detail = json!({ "kind": kind, "logical_key": key });
    let message = format!("key \"{key}\" of kind \"{kind}\" is reserved by another tenant");
    Failure::new(SqlState::NOT_RESERVED, message)
        .detail(detail.to_string())
        .hint("Choose another key. A key belongs to one tenant at a time.")
}

pub fn unknown_reservation(id: i64) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("reservation {id} does not exist"))
        .hint("The id is the reservation_id that shard_reserve_slot() returned.")
}

pub fn shard_disabled(shard: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("shard \"{shard}\" is disabled")).hint(
        "A disabled shard only frees and expires slots. Set it active or draining with shard_set_status().",
    )
}

pub fn reservation_confirmed(id: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("reservation {id} is confirmed"))
        .hint("Free a confirmed slot with shard_free_slot().")
}

pub fn reservation_kept(id: i64, whom: &str) -> Failure {
    Failure::new(SqlState::IN_USE, format!("reservation {id} is kept for {whom}")).hint(
        "It belongs to the split or to the tenant's route. shard_split_rollback() or shard_unassign() ends it.",
    )
}

pub fn shard_in_use(shard: &str, id: i64) -> Failure {
    let message = format!("shard \"{shard}\" is in use: reservation {id} holds a slot of it");
    Failure::new(SqlState::IN_USE, message)
        .hint("Free its slots with shard_free_slot() and shard_cancel_slot(). shard_capacity() counts them.")
}

pub fn unknown_strategy(strategy: &str) -> Failure {
    crate::error::invalid("strategy", format!("\"{strategy}\" is not a strategy"))
        .hint("Strategies are fill_first, spread and consistent.")
}

pub fn invalid(argument: &str, problem: &str) -> Failure {
    crate::error::invalid(argument, problem).hint("Correct the value and call again.")
}
