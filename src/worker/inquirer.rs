//! Asks the shards which decided cutovers they know, after the server's start, a promotion or a restore, and ends once all have
//! answered. One that is away is asked again each second: until it is heard, its keys are routed as before. A process of its own:
//! a shard that is silent must not hold up splits or leases.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::agent::error::SplitError;
use crate::agent::inquiry;
use crate::catalog::{shard, shard_decision};
use crate::guc;
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use crate::words::counted;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// For each shard: the first time clients wait for the answer.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);
/// Before those that are away are asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// How the one of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::Inquirer.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_inquirer_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

/// Whether a shard is to be asked now. Within a transaction.
pub fn has_work() -> bool {
    shard_decision::is_here() && !shard_decision::to_ask().is_empty()
}

/// Entry point; the argument is the database's oid. It ends when no shard is to be asked for now.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_inquirer_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // One may have outlived the coordinator that started it.
    if !txn::transaction(|| lock::try_lock(lock::INQUIRER)) {
        return;
    }
    // Those that did not answer this worker.
    let mut away: BTreeSet<String> = BTreeSet::new();
    loop {
        let (due, askable) =
            txn::transaction(|| match splits::catalog_exists() && shard_decision::is_here() {
                true => (shard_decision::to_ask(), shard_decision::askable()),
                false => (Vec::new(), Vec::new()),
            });
        away.retain(|shard_key| askable.contains(shard_key));
        let all: BTreeSet<String> = due.into_iter().chain(away.iter().cloned()).collect();
        if all.is_empty() {
            return;
        }
        for shard_key in all {
            let is_away = match away.contains(&shard_key) {
                true => ask(&shard_key, LIMIT, true),
                false => ask(&shard_key, FIRST_LIMIT, false),
            };
            match is_away {
                true => away.insert(shard_key),
                false => away.remove(&shard_key),
            };
        }
        if !away.is_empty() {
            wait::report(&format!("waiting for {} to answer", counted(away.len(), "shard", "shards")));
            wait::sleep(PAUSE);
        }
    }
}

/// Whether it is away. That is written down once, and again when there is something else.
fn ask(shard_key: &str, limit: Duration, again: bool) -> bool {
    let Ok(shard) = txn::transaction(|| shard::by_key(shard_key)) else { return false };
    wait::report(&format!("asking shard \"{shard_key}\" which decisions it records"));
    let answer = inquiry::ask(&shard, limit.min(guc::remote_timeout()));
    let is_away = answer.as_ref().err().is_some_and(SplitError::is_transient);
    if again && is_away {
        return true;
    }
    let problem = txn::transaction(|| match splits::catalog_exists() {
        true => inquiry::keep(&shard, answer),
        false => None,
    });
    if let Some(problem) = problem {
        pgrx::log!("shard \"{shard_key}\" was asked which decisions it records: {problem}");
    }
    is_away
}
