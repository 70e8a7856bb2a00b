//! How splits end: finish, rollback, a lost shard; what refuses stale clients afterwards, and what a lost master has
//! left.

pub mod adopt;
pub mod batch_proof;
pub mod before;
pub mod cleanup;
pub mod compared;
pub mod ending;
pub mod finish;
pub mod lost_shard;
pub mod proof;
pub mod purge;
pub mod ready;
pub mod rollback;
pub mod withdraw;
