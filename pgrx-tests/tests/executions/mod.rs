//! One statement on all shards.

mod attacks;
mod names;
mod prepared;
mod restored;
mod splits;
mod statements;
mod two_phase;
