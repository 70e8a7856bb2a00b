//! The catalog of the master: one file for each table, typed rows.

pub mod caller;
pub mod cutover_request;
pub mod endpoint;
pub mod event;
pub mod execution;
pub mod gateway;
pub mod in_use;
pub mod keychain;
pub mod keyspace;
pub mod local;
pub mod login;
pub mod name;
pub mod naming;
pub mod place;
pub mod redirect;
pub mod routing;
pub mod routing_history;
pub mod settlement;
pub mod shard;
pub mod split;
pub mod split_progress;
pub mod split_state;
pub mod table_policy;
pub mod trusted_owner;
pub mod verification;
pub mod way_back;
