//! Lookup indexes by another column: the owner of a value, unique over all shards, filled and maintained while clients
//! write.
//!
//! **Level, not edge.** Information from any origin, a shard's queue, its rows, the master's own pairs, is only a
//! hint: this pair of key and owner may exist, or not. Each is settled in the same way (`settle.rs`): the shard that
//! has the owner's rows by its present route is asked whether a row with the pair exists, and the answer is recorded
//! if the route is still the same by then. What a shard has of an owner whose rows are elsewhere is left to the shard
//! that has them: an unreachable shard delays no other one. So the order of hints, over any number of shards and
//! splits, does not matter. A pair is finally right if each change of it is followed by a hint that is settled later:
//!
//! - a client's write is queued by its own transaction on the shard where it is made, in the queue before it is
//!   visible;
//! - a cutover changes no pair: the target has at its opening what the source had behind the fence. What is still in
//!   the source's queue by then is found on the target: known pairs of the owners that have moved are settled again,
//!   and their rows are read (`assigned.rs`);
//! - earlier rows are found by the fill, which begins once all earlier writers have ended;
//! - if hints were lost (a queue that was full, a table that was truncated or rewritten, another server than the one
//!   that was asked before, a master that has forgotten what it took), all pairs of an earlier epoch are settled again
//!   (`run.rs`);
//! - an assignment has the rows of its keys settled (`assigned.rs`).

mod columns;
mod define;
mod fill;
pub mod on_assignment;
pub mod points;
mod removal;
pub mod replicate;
mod run;
mod session;
mod settle;
pub mod validate;

pub use define::{add, claim, conflicts, drop, table_add, table_drop};
pub use removal::clean;
pub use run::{LookupTurns, has_work};
