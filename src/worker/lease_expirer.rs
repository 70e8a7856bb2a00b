//! Expires leases and archives old reservations. This is a process of its own: an error of a sweep must not delay
//! splits, nor long work on splits a lease.

use super::service::ServiceTurns;
use super::splits;
use crate::guc;
use crate::placement::{sweep, sweep_clock};
use crate::server::{txn, wait};
use std::time::{Duration, Instant};

/// The interval of checks for the extension.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Begins the service. It never ends: leases expire in any case.
pub fn begin() -> ServiceTurns {
    // It is None if there was nothing to sweep yet; CREATE EXTENSION wakes the service.
    let mut swept: Option<Instant> = None;
    Box::new(move || {
        // The interval may have been shortened since the clock was set.
        let late = swept.is_none_or(|swept| swept.elapsed() >= guc::lease_sweep_interval());
        if late || sweep_clock::left().is_zero() {
            wait::report("expiring leases");
            let began = Instant::now();
            let pause = txn::transaction(|| splits::catalog_exists().then(sweep::turn));
            // If there is more to do, half of the time is left to reservations.
            let pause = pause.map(|pause| pause.max(began.elapsed()));
            sweep_clock::set(pause.unwrap_or_else(|| splits::until_created(LOOK_AGAIN)));
            swept = pause.map(|_| Instant::now());
            wait::report_idle(match pause {
                Some(_) => "waiting for the next lease to expire",
                None => splits::WAITS_FOR_EXTENSION,
            });
        }
        Some(sweep_clock::left().min(guc::lease_sweep_interval()))
    })
}
