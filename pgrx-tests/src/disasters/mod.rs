//! The disaster matrix: what becomes of a split, and of its clients, when a server or a link
//! fails in a way that a restart does not mend, at each point of its life.
//!
//! A cell ends well if every acknowledged write is on exactly the shard that the route
//! names and nowhere else, but for what a server that was set back has lost itself; either by
//! itself, or after a refusal that deletes nothing and names the call that helps, which the
//! cell then makes. Meanwhile clients are answered in time.

mod addresses;
pub(crate) mod backup;
mod cell;
mod chosen;
mod ends;
mod full;
mod history;
mod injections;
mod kinds;
mod operator;
mod report;
mod rescue;
mod site;
mod walk;
mod writers;

pub use cell::{Shown, run, run_for};
pub use chosen::CHOSEN;
pub use ends::{ENDS, End, expected};
pub use full::mounted as small_disk;
pub use injections::{FAMILIES, INJECTIONS, Injection, OF_LINKS, Stage};
pub use kinds::{DISASTERS, Disaster, Link, Place};
pub use operator::{Ended, Help};
