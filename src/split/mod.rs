//! The work of one split.

use crate::worker::{plan, txn, wait};
use std::time::Duration;

/// Works on the split until nothing is left to do.
pub fn run(split_id: i64) {
    while txn::transaction(|| plan::catalog_exists() && plan::has_work(split_id)) {
        wait::report("waiting for the goal");
        wait::sleep(Duration::from_secs(10));
    }
}
