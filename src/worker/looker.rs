//! Keeps lookup indexes: fills them, and follows what clients write. A process of its own: a shard that is silent must not hold up
//! splits or leases.

use super::service::ServiceTurns;
use super::splits;
use crate::lookups;
use crate::server::wait;

/// It ends when there is no lookup index, and nothing left of one.
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
