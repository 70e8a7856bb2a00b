//! Credentials of shards: the fields of each kind, and their encryption with a master key that is never in the
//! database.

pub mod command;
pub mod encrypt;
pub mod error;
pub mod kind;
pub mod master_key;
pub mod plain_file;
pub mod redacted_log;
pub mod redacted_statistics;
pub mod secret;
pub mod setter;
mod statement;
pub mod token;
