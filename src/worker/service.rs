//! A service: a worker of which a database has at most one. All of them are started, and begin, in one way.

use super::lock;
use super::start::{accept_signals, pin_settings};
use crate::server::process::WorkerKind;
use crate::server::{spawn, txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::pg_sys;
use std::time::Duration;

/// The turns of a service until nothing is left to do, with their state. Each turn returns how long it pauses, after
/// it has reported why; None ends the service.
pub type ServiceTurns = Box<dyn FnMut() -> Option<Duration>>;

/// Returns how the service of a database is started.
pub fn builder(kind: WorkerKind, function: &str, database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = kind.name();
    spawn::builder(&name, function)
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
        .set_extra(&name)
}

/// Connects to the database that the argument of the entry point names, and takes turns.
pub fn serve(kind: WorkerKind, argument: pg_sys::Datum, begin: fn() -> ServiceTurns) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(argument.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // An earlier service may have outlived the process that started it: nothing that it still commits may come after
    // what this one does.
    if !txn::transaction(|| lock::try_lock(lock::of(kind))) {
        return;
    }
    let mut turn = begin();
    while let Some(pause) = turn() {
        wait::sleep(pause);
    }
}
