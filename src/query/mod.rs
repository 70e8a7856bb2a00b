//! Queries of all shards at once: the logins, what each shard leaves out, and the rows.

pub mod between;
pub mod encoding;
mod error;
pub mod login;
pub mod misplaced;
pub mod opening;
pub mod page;
pub mod record;
pub mod run;
pub mod sessions;
pub mod top;
mod top_answer;
