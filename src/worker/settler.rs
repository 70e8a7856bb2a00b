//! Settles statements in two phases whose session is gone: what they have prepared on shards holds locks there until
//! somebody ends it. A process of its own: a shard that is silent must not hold up splits or leases.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::execution;
use crate::guc;
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks for others, which come while one is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a shard is waited for, and how long it is left alone after that: twice as long with each attempt in vain.
const FIRST: Duration = Duration::from_secs(3);
const DOUBLINGS: u32 = 4;

/// How the settler of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::Settler.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_settler_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

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

/// Entry point of the settler; the argument is the database's oid. It ends when nothing is left.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_settler_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // One may have outlived the coordinator that started it.
    if !txn::transaction(|| lock::try_lock(lock::SETTLER)) {
        return;
    }
    let mut memory: BTreeMap<i64, Attempts> = BTreeMap::new();
    loop {
        let (left, done) = txn::transaction(|| match splits::catalog_exists() {
            true => (execution::orphans(), execution::to_look_at()),
            false => (Vec::new(), Vec::new()),
        });
        if left.is_empty() && done.is_empty() {
            return;
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
        wait::sleep(LOOK_AGAIN);
    }
}
