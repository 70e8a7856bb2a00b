//! Settles statements in two phases whose session is gone: what they have prepared on shards holds locks there until
//! somebody ends it. A process of its own: a shard that is silent must not hold up splits or leases.

use super::service::Turns;
use super::splits;
use crate::execution;
use crate::guc;
use crate::server::{txn, wait};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks for others, which come while one is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a shard is waited for, and how long it is left alone after that: twice as long with each attempt in vain.
const FIRST: Duration = Duration::from_secs(3);
const DOUBLINGS: u32 = 4;

/// What it remembers of one that it could not settle.
#[derive(Default)]
struct Attempts {
    count: u32,
    next: Option<Instant>,
}

impl Attempts {
    fn patience(&self) -> Duration {
        FIRST.saturating_mul(1 << self.count.min(DOUBLINGS))
    }

    fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    fn failed(&mut self) {
        self.next = Some(Instant::now() + self.patience());
        self.count += 1;
    }
}

/// It ends when nothing is left.
pub fn begin() -> Turns {
    let mut memory: BTreeMap<i64, Attempts> = BTreeMap::new();
    Box::new(move || {
        let (left, done) = txn::transaction(|| match splits::catalog_exists() {
            true => (execution::orphans(), execution::to_look_at()),
            false => (Vec::new(), Vec::new()),
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
            let attempts = memory.entry(id).or_default();
            if !attempts.is_due() {
                continue;
            }
            wait::report(&format!("ending execution {id}"));
            let patience = attempts.patience().min(guc::remote_timeout());
            if let Some(why) = execution::settle_left(id, patience) {
                pgrx::log!("execution {id} has not ended: {}", why.cleaned());
                attempts.failed();
            }
        }
        wait::report_idle(&format!("{} executions have not ended", memory.len()));
        Some(LOOK_AGAIN)
    })
}
