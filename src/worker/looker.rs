//! Keeps lookup indexes: fills them, and follows what clients write. A process of its own: a shard that is silent must not hold up
//! splits or leases.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::lookups::Turns;
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;

/// How the one of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::Looker.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_looker_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

/// Entry point; the argument is the database's oid. It ends when there is no lookup index, and nothing left of one.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_looker_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // One may have outlived the coordinator that started it: nothing that it still commits may come behind what this one does.
    if !txn::transaction(|| lock::try_lock(lock::LOOKER)) {
        return;
    }
    let mut turns = Turns::default();
    while let Some(pause) = turns.take(splits::catalog_exists) {
        if !pause.is_zero() {
            wait::report_idle("waiting for changes of lookup indexes' keys");
        }
        wait::sleep(pause);
    }
}
