//! The worker of one split: takes the split's lock, does its work, ends.

use super::start::{accept_signals, pin_settings};
use super::{lock, splits};
use crate::server::{txn, wait};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use std::time::Duration;

/// The pause between two turns of one worker: it avoids a busy loop if the work ends while the plan still requests
/// more.
const BETWEEN_TURNS: Duration = Duration::from_millis(100);

/// Entry point of a split's worker; the argument is the split's id.
///
/// No request is lost between a worker that is about to end and a session that requests more. The session commits its
/// request first, and then a new worker is started, which ends at once if the old one still has the lock. The old
/// worker releases the lock first and reads the plan after that, and the later of the two sees the request: either the
/// lock was free for the new worker, or the old one's last read came after the commit.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_split_main(arg: pg_sys::Datum) {
    let split_id = arg.value() as i64;
    accept_signals();
    let Some((database, role)) = parse_extra(BackgroundWorker::get_extra()) else {
        error!("worker of split {split_id} was started with malformed arguments");
    };
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), Some(role));
    pin_settings();
    while has_work(split_id) && lock::try_lock(split_id) {
        // The plan is read again under the lock: another worker may have finished the work in between.
        if has_work(split_id) {
            crate::split::run(split_id);
        }
        lock::unlock(split_id);
        if !has_work(split_id) {
            break;
        }
        wait::sleep(BETWEEN_TURNS);
    }
}

fn has_work(split_id: i64) -> bool {
    txn::transaction(|| splits::catalog_exists() && splits::has_work(split_id))
}

/// Parses database and role, as `spawn::split_worker` writes them.
fn parse_extra(extra: &str) -> Option<(pg_sys::Oid, pg_sys::Oid)> {
    let (database, role) = extra.split_once(' ')?;
    let oid = |text: &str| text.parse().ok().map(pg_sys::Oid::from_u32);
    Some((oid(database)?, oid(role)?))
}
