//! The services of a database, beside its coordinator, which keeps them running.

use super::service::{self, ServiceTurns};
use super::{inquirer, jobs, lease_expirer, lookup_worker, references, splits, two_phase_recovery};
use crate::catalog::{job, reference};
use crate::server::process::WorkerKind;
use crate::server::txn;
use crate::{execution, lookups};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;

pub struct Service {
    pub kind: WorkerKind,
    /// Whether it must run. It is called in a transaction, if the catalog exists.
    pub has_work: fn() -> bool,
    begin: fn() -> ServiceTurns,
}

pub const SERVICES: [Service; 6] = [
    Service { kind: WorkerKind::LeaseExpirer, has_work: || true, begin: lease_expirer::begin },
    Service {
        kind: WorkerKind::TwoPhaseRecovery,
        has_work: execution::any_left,
        begin: two_phase_recovery::begin,
    },
    Service { kind: WorkerKind::LookupWorker, has_work: lookups::has_work, begin: lookup_worker::begin },
    Service { kind: WorkerKind::References, has_work: reference::any, begin: references::begin },
    Service { kind: WorkerKind::Jobs, has_work: job::has_work, begin: jobs::begin },
    Service { kind: WorkerKind::Inquirer, has_work: inquirer::has_work, begin: inquirer::begin },
];

/// Returns which of them must run. The first one expires leases in any case, also before the catalog exists.
pub fn wanted() -> [bool; SERVICES.len()] {
    txn::transaction(|| {
        let is_there = splits::catalog_exists();
        SERVICES.map(|service| service.kind == WorkerKind::LeaseExpirer || is_there && (service.has_work)())
    })
}

pub fn builder(kind: WorkerKind, database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    service::builder(kind, "shardmaster_service_main", database)
}

/// Entry point of each service; the argument is the database's oid, and its extra data is the service's name.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_service_main(arg: pg_sys::Datum) {
    let name = BackgroundWorker::get_extra();
    let Some(service) = SERVICES.iter().find(|service| service.kind.name() == name) else {
        error!("\"{name}\" is no service of this library");
    };
    service::serve(service.kind, arg, service.begin);
}
