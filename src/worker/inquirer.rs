//! Asks the shards which decided cutovers they know, after the server's start, a promotion or a restore, and ends once all have
//! answered. A process of its own: a shard that is silent must not hold up splits or leases.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::agent::inquiry;
use crate::catalog::{shard, shard_decision};
use crate::guc;
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;
use std::time::Duration;

/// For each shard.
const LIMIT: Duration = Duration::from_secs(5);

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
    loop {
        let due = txn::transaction(|| match splits::catalog_exists() && shard_decision::is_here() {
            true => shard_decision::to_ask(),
            false => Vec::new(),
        });
        if due.is_empty() {
            return;
        }
        for shard_key in due {
            ask(&shard_key);
        }
    }
}

fn ask(shard_key: &str) {
    let Ok(shard) = txn::transaction(|| shard::by_key(shard_key)) else { return };
    wait::report(&format!("asking shard \"{shard_key}\" which decisions it knows"));
    let answer = inquiry::ask(&shard, LIMIT.min(guc::remote_timeout()));
    let problem = txn::transaction(|| match splits::catalog_exists() {
        true => inquiry::keep(&shard, answer),
        false => None,
    });
    if let Some(problem) = problem {
        pgrx::log!("shard \"{shard_key}\" was asked which decisions it knows: {problem}");
    }
}
