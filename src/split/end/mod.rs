//! How splits end: finish, rollback, a shard that is lost; what refuses stale clients after it,
//! and what a master that is gone has left.

pub mod adopt;
pub mod before;
pub mod cleanup;
pub mod copies;
pub mod ended;
pub mod ending;
pub mod finish;
pub mod lost;
pub mod old_guards;
pub mod proof;
pub mod purge;
pub mod ready;
pub mod redirect;
pub mod rollback;
mod shown;
