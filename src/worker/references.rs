//! Keeps reference tables on every shard equal to their origins. This is a process of its own: a silent shard must not
//! delay splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::catalog::reference;
use crate::guc;
use crate::reference::{Follower, NextTurn};
use crate::server::{txn, wait};

/// Begins the service. It ends when no reference table is left.
pub fn begin() -> ServiceTurns {
    let mut follower = None;
    Box::new(move || {
        let is_there = txn::transaction(splits::catalog_exists);
        if !is_there || follower.is_none() && !txn::transaction(reference::any) {
            return None;
        }
        if follower.get_or_insert_with(Follower::begin).turn() != NextTurn::Turn {
            return None;
        }
        wait::report_idle("following reference tables");
        Some(guc::tail_interval())
    })
}
