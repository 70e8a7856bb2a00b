//! Asks the shards which decided cutovers they know, after the server's start, a promotion or a restore, and ends once
//! all have answered. An unreachable shard is asked again each second: until it answers, its keys are routed as
//! before. This is a process of its own: a silent shard must not delay splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::agent::error::SplitError;
use crate::agent::inquiry;
use crate::catalog::{shard, shard_decision};
use crate::guc;
use crate::server::{txn, wait};
use crate::words::counted;
use std::collections::BTreeSet;
use std::time::Duration;

/// The limits for each shard: the first one is short, since clients wait for the answer.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);
/// The pause before unreachable shards are asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether a shard must be asked now. It is called within a transaction.
pub fn has_work() -> bool {
    shard_decision::is_here() && !shard_decision::to_ask().is_empty()
}

/// Begins the service. It ends when no shard must be asked for now.
pub fn begin() -> ServiceTurns {
    // These did not answer this worker.
    let mut away: BTreeSet<String> = BTreeSet::new();
    Box::new(move || {
        let (due, askable) = txn::transaction(|| {
            if splits::catalog_exists() && shard_decision::is_here() {
                (shard_decision::to_ask(), shard_decision::askable())
            } else {
                (Vec::new(), Vec::new())
            }
        });
        away.retain(|shard_key| askable.contains(shard_key));
        let all: BTreeSet<String> = due.into_iter().chain(away.iter().cloned()).collect();
        if all.is_empty() {
            return None;
        }
        for shard_key in all {
            let is_away = if away.contains(&shard_key) {
                ask(&shard_key, LIMIT, true)
            } else {
                ask(&shard_key, FIRST_LIMIT, false)
            };
            if is_away {
                away.insert(shard_key)
            } else {
                away.remove(&shard_key)
            };
        }
        if away.is_empty() {
            return Some(Duration::ZERO);
        }
        wait::report(&format!("waiting for {} to answer", counted(away.len(), "shard", "shards")));
        Some(PAUSE)
    })
}

/// Asks a shard and returns whether it is unreachable. This is recorded once, and again when it changes.
fn ask(shard_key: &str, limit: Duration, again: bool) -> bool {
    let Ok(shard) = txn::transaction(|| shard::by_key(shard_key)) else { return false };
    wait::report(&format!("asking shard \"{shard_key}\" which decisions it records"));
    let answer = inquiry::ask(&shard, limit.min(guc::remote_timeout()));
    let is_away = answer.as_ref().err().is_some_and(SplitError::is_transient);
    if again && is_away {
        return true;
    }
    let problem =
        txn::transaction(|| if splits::catalog_exists() { inquiry::keep(&shard, answer) } else { None });
    if let Some(problem) = problem {
        pgrx::log!("shard \"{shard_key}\" was asked which decisions it records: {problem}");
    }
    is_away
}
