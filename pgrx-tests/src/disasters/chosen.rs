//! The cells that every run of the tests goes through: each disaster and each injection at
//! least once. The others take hours.

use super::kinds::Disaster::{self, *};
use super::kinds::{Link, Place};

#[rustfmt::skip]
pub const CHOSEN: &[(Disaster, &str)] = &[
    (Hung(Place::Target),    "cutover_applied"),
    (Hung(Place::Source),    "cutover_locked"),
    (Hung(Place::Master),    "cutover_fenced"),
    (Silent(Link::Target),   "cutover_sequences"),
    (Silent(Link::Source),   "cutover_disabled"),
    (OneLost(Link::Source),  "rollback_batch"),
    (OneLost(Link::Target),  "finish_begin"),
    (Disk(Place::Master),    "finish_ready"),
    (Cut(Link::Target),      "rollback_begin"),
    (Cut(Link::Source),      "finish_trigger"),
    (Slow(Link::Source),     "step_chunk"),
    (Slow(Link::Target),     "cutover_begin"),
    (Disk(Place::Target),    "finish_batch"),
    (Disk(Place::Source),    "completed"),
    (Disk(Place::Master),    "finish_objects"),
    (Standby(Place::Target), "cutover_decided"),
    (Standby(Place::Source), "cutover_opened"),
    (Standby(Place::Master), "cutover_moved"),
    (Dump(Place::Target),    "tailing"),
    (Dump(Place::Source),    "recovery_caught_up"),
    (Hung(Place::Target),    "recovery_awaited"),
    (Dump(Place::Master),    "rollback_rows"),
    (Gone(Place::Target),    "rollback_capture"),
    (Gone(Place::Source),    "recovery_fenced"),
    (Gone(Place::Master),    "finish_entered"),
    (Full(Place::Target),    "step_chunk"),
    (Full(Place::Source),    "finish_unguarded"),
    (Full(Place::Master),    "planned"),
    (Disk(Place::Target),    "finish_rows"),
    (Cut(Link::Source),      "finish_redirected"),
    (Hung(Place::Source),    "finish_untriggered"),
    (Hung(Place::Target),    "rollback_objects"),
    (Disk(Place::Master),    "finish_unguarded"),
    (Dump(Place::Master),    "finish_left"),
    (Disk(Place::Target),    "finish_dropped"),
    (Disk(Place::Target),    "rollback_objects"),
    (Standby(Place::Master), "cutover_reopened"),
];
