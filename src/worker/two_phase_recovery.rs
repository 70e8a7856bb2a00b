//! Completes statements in two phases whose session is gone: what they have prepared on shards holds locks there until
//! it is ended. This is a process of its own: a silent shard must not delay splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::server::retry::Backoff;
use crate::server::{txn, wait};
use crate::{execution, guc};
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval of checks for other statements, which may come while one is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a shard is waited for, and how long it is not asked after that.
const FIRST: Duration = Duration::from_secs(3);
const LONGEST_WAIT: Backoff = Backoff::new(FIRST, Duration::from_secs(48));

/// Begins the service. It ends when nothing is left.
pub fn begin() -> ServiceTurns {
    let mut memory: BTreeMap<i64, Backoff> = BTreeMap::new();
    Box::new(move || {
        let (left, done) = txn::transaction(|| {
            if splits::catalog_exists() {
                (execution::orphans(), execution::to_look_at())
            } else {
                (Vec::new(), Vec::new())
            }
        });
        if left.is_empty() && done.is_empty() {
            return None;
        }
        for id in done {
            wait::report(&format!("examining execution {id}"));
            execution::look_again(id, FIRST.min(guc::remote_timeout()));
        }
        memory.retain(|id, _| left.contains(id));
        for id in left {
            let attempts = memory.entry(id).or_insert(LONGEST_WAIT);
            if !attempts.is_due() {
                continue;
            }
            wait::report(&format!("ending execution {id}"));
            let longest = attempts.pause().min(guc::remote_timeout());
            if let Some(why) = execution::settle_left(id, longest) {
                pgrx::log!("execution {id} has not ended: {}", why.cleaned());
                attempts.failed();
            }
        }
        wait::report_idle(&format!("{} executions have not ended", memory.len()));
        Some(LOOK_AGAIN)
    })
}
