//! Keeps lookup indexes: fills them, and follows what clients write. This is a process of its own: a silent shard must
//! not delay splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::lookups;
use crate::server::wait;

/// Begins the service. It ends when there is no lookup index, and nothing left of one.
pub fn begin() -> ServiceTurns {
    let mut turns = lookups::LookupTurns::default();
    Box::new(move || {
        let pause = turns.take(splits::catalog_exists)?;
        if !pause.is_zero() {
            wait::report_idle("waiting for changes of lookup indexes' keys");
        }
        Some(pause)
    })
}
