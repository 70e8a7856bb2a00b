//! Expires leases and archives old reservations. A process of its own: an error in a
//! sweep must not hold up splits, nor a long look at splits a lease.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::guc;
use crate::placement::{sweep, sweep_clock};
use crate::server::process::Kind;
use crate::server::spawn::LIBRARY;
use crate::server::{txn, wait};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;
use std::time::{Duration, Instant};

/// Between two looks for the extension.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How the sweeper of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::Sweeper.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_sweeper_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

/// Entry point of the sweeper; the argument is the database's oid.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_sweeper_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // One may have outlived the coordinator that started it.
    if !txn::transaction(|| lock::try_lock(lock::SWEEPER)) {
        return;
    }
    // None: there was nothing to sweep yet; CREATE EXTENSION wakes.
    let mut swept: Option<Instant> = None;
    loop {
        // The interval may have been set shorter since the clock was.
        let late = swept.is_none_or(|swept| swept.elapsed() >= guc::lease_sweep_interval());
        if late || sweep_clock::left().is_zero() {
            wait::report("expiring leases");
            let began = Instant::now();
            let pause = txn::transaction(|| splits::catalog_exists().then(sweep::turn));
            // Where there is more, half of the time is for reservations.
            let pause = pause.map(|pause| pause.max(began.elapsed()));
            sweep_clock::set(pause.unwrap_or_else(|| splits::until_created(LOOK_AGAIN)));
            swept = pause.map(|_| Instant::now());
            wait::report_idle(match pause {
                Some(_) => "waiting for the next lease to expire",
                None => splits::WAITS_FOR_EXTENSION,
            });
        }
        wait::sleep(sweep_clock::left().min(guc::lease_sweep_interval()));
    }
}
