//! Online splits. `run` is the loop of a worker; behind it are rooms, in the order in which a split passes them:
//! `plan`, `install`, `copy`, `cutover`, `end`. `docs/internals/protocol.md` explains why each of them is as it is.

pub mod aborted;
mod analyze;
pub mod copy;
pub mod cutover;
pub mod diagnose;
pub mod end;
pub mod engine;
pub mod finding;
pub mod injection_points;
pub mod install;
pub mod lifecycle;
pub mod metrics;
pub mod phases;
pub mod plan;
mod readers;
pub mod reads;
pub mod record;
pub mod redirect;
pub mod references;
pub mod remark;
pub mod reverse;
pub mod reverse_preconditions;
mod run;
pub mod sequences;
mod since_check;
pub mod table;
pub mod unregistered;
pub mod untrusted_code;
pub mod verify;

pub use run::run;
