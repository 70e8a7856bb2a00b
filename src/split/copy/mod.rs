//! How rows come over: a step takes a snapshot, applies the window of what has changed since
//! the last one, copies a chunk, and commits both with its progress.

mod apart;
mod bound;
mod by_keys;
pub mod chunk;
pub mod collision;
pub mod commit;
pub mod compare;
pub mod computed;
pub mod counted;
mod few;
pub mod foreign_keys;
mod harmless;
pub mod held;
pub mod judged;
pub mod leaves;
pub mod locks;
pub mod meant;
pub mod outcome;
mod places;
mod replay;
pub mod reshape;
mod round;
pub mod scope_size;
pub mod sieve;
pub mod step;
pub mod stream;
pub mod streams;
mod text_rows;
pub mod throttle;
pub mod window;
