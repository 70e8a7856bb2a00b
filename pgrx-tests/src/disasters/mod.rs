//! The disaster matrix: what happens to a split and its clients if a server or a link fails in a way that a
//! restart does not repair, at each point of the split's life.
//!
//! A cell ends well if every acknowledged write is on exactly the shard that its route names, and nowhere
//! else, except for writes that a restored server has lost itself. Either this happens automatically, or
//! after an error that deletes nothing and names the call that helps. The cell then makes this call.
//! Meanwhile clients get answers in time.

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
