//! The cells that every run of the tests tries: each disaster once, and at least one at each stage of a
//! split. All others take hours and need `make test-all`.

use super::disaster::Disaster::{self, *};
use super::disaster::{Link, Place};

#[rustfmt::skip]
pub const CHOSEN: &[(Disaster, &str)] = &[
    (Hung(Place::Target),    "cutover_applied"),
    (Hung(Place::Source),    "cutover_locked"),
    (Hung(Place::Master),    "cutover_fenced"),
    (Silent(Link::Target),   "cutover_sequences"),
    (Silent(Link::Source),   "cutover_disabled"),
    (OneLost(Link::Source),  "rollback_batch"),
    (OneLost(Link::Target),  "finish_begin"),
    (Disk(Place::Master),    "finish_objects"),
    (Cut(Link::Target),      "rollback_begin"),
    (Cut(Link::Source),      "finish_trigger"),
    (Slow(Link::Source),     "step_chunk"),
    (Slow(Link::Target),     "cutover_begin"),
    (Disk(Place::Target),    "finish_batch"),
    (Disk(Place::Source),    "completed"),
    (Standby(Place::Target), "cutover_decided"),
    (Standby(Place::Source), "cutover_opened"),
    (Standby(Place::Master), "cutover_moved"),
    (Dump(Place::Target),    "tailing"),
    (Dump(Place::Source),    "recovery_caught_up"),
    (Dump(Place::Master),    "rollback_rows"),
    (Gone(Place::Target),    "rollback_capture"),
    (Gone(Place::Source),    "recovery_fenced"),
    (Gone(Place::Master),    "finish_entered"),
    (Full(Place::Target),    "step_chunk"),
    (Full(Place::Source),    "finish_unguarded"),
    (Full(Place::Master),    "planned"),
];
