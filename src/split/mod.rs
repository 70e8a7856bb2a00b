//! Online splits: the state machine as data, and the steps of the engine.
//! `docs/protocol.md` says why each of them is as it is.

pub mod check;
pub mod chunk;
pub mod cleanup;
pub mod collision;
pub mod columns;
pub mod compare;
pub mod counters;
pub mod cutover;
mod decision;
mod ending;
pub mod engine;
pub mod fence;
pub mod figures;
pub mod finish;
pub mod install;
pub mod leaves;
pub mod lifecycle;
mod lost;
mod old_guards;
mod on_master;
mod owners;
pub mod plan;
pub mod points;
mod policies;
pub mod progress;
mod proof;
pub mod purge;
pub mod record;
pub mod recovery;
pub mod redirect;
pub mod references;
pub mod rollback;
mod run;
pub mod scope_size;
pub mod sequences;
mod sieve;
pub mod step;
mod triggers;
mod watch;
pub mod window;

pub use run::run;
