//! Keeps reference tables on every shard as their origins have them. A process of its own: a shard that is silent must
//! not hold up splits or leases.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::catalog::reference;
use crate::guc;
use crate::reference::{Follower, Next};
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;

/// How it is started for a database.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::References.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_references_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

/// Entry point; the argument is the database's oid. It ends when no reference table is left.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_references_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // One may have outlived the coordinator that started it.
    if !txn::transaction(|| lock::try_lock(lock::REFERENCES)) {
        return;
    }
    if !txn::transaction(|| splits::catalog_exists() && reference::any()) {
        return;
    }
    let mut follower = Follower::begin();
    while txn::transaction(splits::catalog_exists) && follower.turn() == Next::Turn {
        wait::report_idle("following reference tables");
        wait::sleep(guc::tail_interval());
    }
}
