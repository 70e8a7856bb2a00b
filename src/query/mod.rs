//! What is asked of all shards at once: as whom, what each of them leaves out, and its rows.

pub mod between;
mod encoding;
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
