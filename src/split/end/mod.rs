//! How splits end: finish, rollback, a shard that is lost; what refuses stale clients after it,
//! and what a master that is gone has left.

pub mod adopt;
pub mod before;
pub mod cleanup;
pub mod compared;
pub mod ending;
pub mod finish;
pub mod lost;
pub mod proof;
pub mod purge;
pub mod ready;
pub mod rollback;
mod shown;
