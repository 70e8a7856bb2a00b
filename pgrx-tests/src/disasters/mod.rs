//! The disaster matrix: what becomes of a split, and of its clients, when a server or a link
//! fails in a way that a restart does not mend, at each point of its life.
//!
//! A cell ends well if every acknowledged write is on exactly the shard that the route
//! names and nowhere else, but for what a server that was set back has lost itself; either by
//! itself, or after a refusal that deletes nothing and names the call that helps, which the
//! cell then makes. Meanwhile clients are answered in time.

mod addresses;
mod approach;
pub(crate) mod backup;
mod cell;
mod disaster;
mod expected_ends;
mod full_disk;
mod history;
mod injections;
mod manual_recovery;
mod operator;
mod report;
mod selection;
mod site;
mod writers;

pub use cell::{CellResult, run, run_for};
pub use disaster::{DISASTERS, Disaster, Link, Place};
pub use expected_ends::{ENDS, ExpectedEnd, expected};
pub use full_disk::mounted as small_disk;
pub use injections::{FAMILIES, INJECTIONS, Injection, OF_LINKS, SplitStage};
pub use operator::{Ended, Help};
pub use selection::CHOSEN;
