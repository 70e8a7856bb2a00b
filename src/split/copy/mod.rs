//! How rows are copied: a step takes a snapshot, applies the window of what has changed since the last one, copies a
//! chunk, and commits both with its progress.

mod apart;
mod bound;
mod by_keys;
pub mod chunk;
pub mod collision;
pub mod commit;
pub mod compare;
mod few;
pub mod foreign_keys;
mod harmless;
pub mod judged;
pub mod leaves;
pub mod meant;
pub mod outcome;
pub mod places;
pub mod replay;
mod round;
pub mod sieve;
pub mod step;
pub mod streams;
mod text_rows;
pub mod window;
