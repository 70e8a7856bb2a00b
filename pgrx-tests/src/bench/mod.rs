//! Benchmarks, each beside a reference in the same run; see `src/bin/bench.rs`.

mod buckets;
mod capture;
mod check;
mod copy;
mod cutover;
mod directory;
mod distance;
mod finish;
mod fixed_rate;
mod guard;
mod many_tables;
mod misplaced;
mod partitions;
mod placement;
mod plot;
mod plots;
mod queries;
mod redirect;
mod reverse;
mod rig;
mod routing;
mod sessions;
mod small_splits;
mod stats;
mod streams;
mod tail;
mod verify;

pub use stats::{Measure, print_table};

use crate::Result;

/// The full size, or a small one that only shows that a benchmark works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Full,
    Quick,
}

impl Size {
    fn rows(self, full: i64) -> i64 {
        match self {
            Size::Full => full,
            Size::Quick => full / 20,
        }
    }

    fn pairs(self, full: usize) -> usize {
        match self {
            Size::Full => full,
            Size::Quick => 2,
        }
    }

    fn seconds(self, full: u64) -> u64 {
        match self {
            Size::Full => full,
            Size::Quick => 1,
        }
    }
}

type Benchmark = fn(Size) -> Result<Vec<Measure>>;

/// All benchmarks, by name.
pub const ALL: [(&str, Benchmark); 35] = [
    ("check", check::check),
    ("backfill", copy::backfill),
    ("streams", streams::streams),
    ("growth", copy::growth),
    ("writers", copy::writers),
    ("pace", fixed_rate::pace),
    ("capture", capture::capture),
    ("redirect", redirect::redirect),
    ("guard", guard::guard),
    ("way_back", reverse::way_back),
    ("verify", verify::verify),
    ("finish", finish::finish),
    ("buckets", buckets::buckets),
    ("backlog", tail::backlog),
    ("catch_up", tail::catch_up),
    ("cutover", cutover::cutover),
    ("tables", distance::tables),
    ("distance", distance::distance),
    ("many", many_tables::many),
    ("small", small_splits::small),
    ("finished", small_splits::finished),
    ("partitions", partitions::partitions),
    ("shards", placement::shards),
    ("reservations", placement::reservations),
    ("clients", placement::clients),
    ("expiry", placement::expiry),
    ("hash", routing::hash),
    ("routes", routing::routes),
    ("unknown", routing::unknown),
    ("directory", directory::directory),
    ("identifiers", routing::identifiers),
    ("queries", queries::queries),
    ("misplaced", misplaced::misplaced),
    ("sessions", sessions::sessions),
    ("plots", plots::plots),
];
