//! The errors of placement, as callers see them.

use crate::error::{Failure, SqlState};
use serde_json::json;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PlacementError {
    #[error("no shard of kind \"{kind}\" has free capacity")]
    NoCapacity { kind: String, full: Vec<String>, draining: Vec<String>, disabled: Vec<String> },
    #[error("shard \"{shard}\" has room for {free} of {wanted} keys")]
    ShardFull { shard: String, free: i64, wanted: i64 },
    #[error("quota of tenant \"{tenant}\" for kind \"{kind}\" is used up: {held} of {quota} slots")]
    Quota { tenant: String, kind: String, held: i64, quota: i64 },
    #[error("reservation {id} {reason}")]
    NotLive { id: i64, reason: String },
    #[error("key \"{key}\" of kind \"{kind}\" is reserved by another tenant")]
    SomebodyElses { kind: String, key: String },
    #[error("reservation {0} does not exist")]
    Unknown(i64),
    #[error("shard \"{shard}\" is disabled")]
    Disabled { shard: String },
    #[error("reservation {0} is confirmed")]
    Confirmed(i64),
    #[error("reservation {id} is kept for {whom}")]
    Kept { id: i64, whom: String },
    #[error("shard \"{shard}\" is in use: reservation {id} holds a slot of it")]
    InUse { shard: String, id: i64 },
    #[error("invalid value for \"{argument}\": {problem}")]
    Invalid { argument: &'static str, problem: String },
}

impl PlacementError {
    pub fn invalid(argument: &'static str, problem: impl Into<String>) -> PlacementError {
        PlacementError::Invalid { argument, problem: problem.into() }
    }

    fn hint(&self) -> (SqlState, &'static str) {
        match self {
            PlacementError::NoCapacity { full, draining, disabled, .. } => {
                let none = full.is_empty() && draining.is_empty() && disabled.is_empty();
                let hint = if none {
                    "There is no shard of this kind. Add one with shard_add()."
                } else {
                    "shard_capacity() shows how full each shard is. Add a shard, raise a capacity with shard_set_capacity(), free slots, or activate a shard with shard_set_status()."
                };
                (SqlState::NO_CAPACITY, hint)
            }
            PlacementError::ShardFull { .. } => (
                SqlState::NO_CAPACITY,
                "Choose another shard, or raise the capacity with shard_set_capacity().",
            ),
            PlacementError::Quota { .. } => (
                SqlState::QUOTA_EXCEEDED,
                "Free slots of the tenant with shard_free_slot(), or raise its quota with shard_set_quota().",
            ),
            PlacementError::NotLive { .. } => {
                (SqlState::NOT_RESERVED, "Reserve the key again with shard_reserve_slot().")
            }
            PlacementError::SomebodyElses { .. } => {
                (SqlState::NOT_RESERVED, "Choose another key. A key belongs to one tenant at a time.")
            }
            PlacementError::Unknown(_) => (
                SqlState::UNDEFINED_OBJECT,
                "The id is the reservation_id that shard_reserve_slot() returned.",
            ),
            PlacementError::Disabled { .. } => (
                SqlState::NOT_IN_STATE,
                "A disabled shard only frees and expires slots. Set it active or draining with shard_set_status().",
            ),
            PlacementError::Confirmed(_) => {
                (SqlState::NOT_IN_STATE, "Free a confirmed slot with shard_free_slot().")
            }
            PlacementError::Kept { .. } => (
                SqlState::IN_USE,
                "It belongs to the split or to the tenant's route. shard_split_rollback() or shard_unassign() ends it.",
            ),
            PlacementError::InUse { .. } => (
                SqlState::IN_USE,
                "Free its slots with shard_free_slot() and shard_cancel_slot(). shard_capacity() counts them.",
            ),
            PlacementError::Invalid { argument: "strategy", .. } => {
                (SqlState::INVALID_VALUE, "Strategies are fill_first, spread and consistent.")
            }
            PlacementError::Invalid { .. } => (SqlState::INVALID_VALUE, "Correct the value and call again."),
        }
    }

    /// Returns the detail for programs, if the SQLSTATE is one of this extension's own.
    fn detail(&self) -> Option<String> {
        let value = match self {
            PlacementError::NoCapacity { kind, full, draining, disabled } => {
                json!({ "kind": kind, "full": full, "draining": draining, "disabled": disabled })
            }
            PlacementError::ShardFull { shard, free, wanted } => {
                json!({ "shard": shard, "room": free, "wanted": wanted })
            }
            PlacementError::Quota { tenant, kind, held, quota } => {
                json!({ "tenant": tenant, "kind": kind, "held": held, "quota": quota })
            }
            PlacementError::NotLive { id, reason } => json!({ "reservation_id": id, "reason": reason }),
            PlacementError::SomebodyElses { kind, key } => json!({ "kind": kind, "logical_key": key }),
            PlacementError::Unknown(_)
            | PlacementError::Disabled { .. }
            | PlacementError::Confirmed(_)
            | PlacementError::Kept { .. }
            | PlacementError::InUse { .. }
            | PlacementError::Invalid { .. } => return None,
        };
        Some(value.to_string())
    }
}

impl From<PlacementError> for Failure {
    fn from(error: PlacementError) -> Failure {
        let (state, hint) = error.hint();
        let failure = Failure::new(state, error.to_string()).hint(hint);
        match error.detail() {
            Some(detail) => failure.detail(detail),
            None => failure,
        }
    }
}
