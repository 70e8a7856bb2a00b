//! How a session's request reaches the workers: at its commit, by their latches.

use super::preload::{in_binary_upgrade, preloaded};
use super::process::{self, Process, WorkerKind};
use super::spawn;
use crate::guc;
use crate::server::database;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// What must happen when the current transaction commits. A savepoint that is rolled back leaves its requests here: a
/// worker that wakes needlessly checks and goes back to sleep.
#[derive(Default)]
struct Requests {
    launcher: bool,
    coordinator: bool,
    lease_expirer: bool,
    /// Splits whose worker must be woken.
    splits: Vec<i64>,
    /// Split workers to start, if no coordinator does it.
    starts: Vec<(i64, pg_sys::BackgroundWorker)>,
}

thread_local! {
    static REQUESTS: RefCell<Requests> = RefCell::default();
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Wakes the coordinator and the split's worker once the current transaction has committed. If there can be no
/// coordinator, a worker is started then, and the session is warned of what is missing.
pub fn split_on_commit(split_id: i64) {
    // The coordinator finds the request once the server runs for its clients again.
    if in_binary_upgrade() || with_requests(|r| r.splits.contains(&split_id)) {
        return;
    }
    if let Some(report) = coordination_missing() {
        report.report(PgLogLevel::WARNING);
        start_on_commit(split_id);
    }
    with_requests(|r| {
        r.coordinator = true;
        r.splits.push(split_id);
    });
}

/// Starts a split's worker once the current transaction has committed, if none runs and there can be no coordinator.
pub fn missing_split_on_commit(split_id: i64) {
    let is_missing = || !process::runs(database::id(), WorkerKind::Split(split_id));
    if !in_binary_upgrade() && coordination_missing().is_some() && is_missing() {
        start_on_commit(split_id);
    }
}

fn start_on_commit(split_id: i64) {
    let start = (&spawn::split_worker(split_id, database::id(), spawn::worker_role())).into();
    with_requests(|r| r.starts.push((split_id, start)));
}

/// Wakes the workers that wait for CREATE EXTENSION once the current transaction has committed.
pub fn creation_on_commit() {
    with_requests(|r| {
        r.coordinator = true;
        r.lease_expirer = true;
    });
}

/// Wakes the coordinator once the current transaction has committed.
pub fn coordinator_on_commit() {
    with_requests(|r| r.coordinator = true);
}

/// Wakes the coordinator now, without raising an error and without memory of the server.
pub fn coordinator() {
    let found = process::of_database(database::id());
    found.iter().filter(|process| process.kind == WorkerKind::Coordinator).for_each(Process::wake);
}

/// Wakes the lease expirer once the current transaction has committed.
pub fn lease_expirer_on_commit() {
    with_requests(|r| r.lease_expirer = true);
}

/// Wakes the launcher once the current transaction has committed.
pub fn launcher_on_commit() {
    with_requests(|r| r.launcher = true);
}

/// Returns why no coordinator serves this database, or None if one does.
fn coordination_missing() -> Option<ErrorReport> {
    let report = |detail: String, hint: &str| {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            "the split's worker is not restarted if it ends before its work is done",
            "shardmaster",
        )
        .set_detail(detail)
        .set_hint(hint)
    };
    if !preloaded() {
        return Some(report(
            "The server did not load \"shardmaster\" when it started.".into(),
            "Add shardmaster to shared_preload_libraries and restart the server. Until then, the same call starts another worker.",
        ));
    }
    let (served, this) = (guc::database(), database::name());
    (served != this).then(|| {
        report(
            format!("shardmaster.database is \"{served}\", this database is \"{this}\"."),
            "Set shardmaster.database to this database and restart the server. Until then, the same call starts another worker.",
        )
    })
}

fn with_requests<R>(body: impl FnOnce(&mut Requests) -> R) -> R {
    if !REGISTERED.replace(true) {
        // SAFETY: the callback is a function of this library, which is never unloaded.
        unsafe { pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut()) };
    }
    REQUESTS.with_borrow_mut(body)
}

/// Carries out the requests. It is called at the end of every transaction of a session that has ever requested a
/// wake-up. A prepared transaction leaves nothing in its session: the coordinator finds the request at its next check.
#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    match event {
        XACT_EVENT_COMMIT => REQUESTS.take().carry_out(),
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => drop(REQUESTS.take()),
        _ => (),
    }
}

impl Requests {
    /// Carries them out. After the commit nothing may fail: an error would take the server down.
    fn carry_out(self) {
        let wake = |found: Vec<Process>, wanted: &dyn Fn(WorkerKind) -> bool| {
            found.iter().filter(|p| wanted(p.kind)).for_each(Process::wake);
        };
        if self.launcher {
            wake(process::of_database(pg_sys::InvalidOid), &|kind| kind == WorkerKind::Launcher);
        }
        if self.coordinator || self.lease_expirer {
            // SAFETY: this is a plain variable, set when this session connected.
            let database = unsafe { pg_sys::MyDatabaseId };
            wake(process::of_database(database), &|kind| match kind {
                WorkerKind::Launcher => false,
                WorkerKind::Coordinator => self.coordinator,
                WorkerKind::LeaseExpirer => self.lease_expirer,
                WorkerKind::TwoPhaseRecovery | WorkerKind::LookupWorker => false,
                WorkerKind::References | WorkerKind::Jobs => self.coordinator,
                WorkerKind::Inquirer => false,
                WorkerKind::Split(id) => self.splits.contains(&id),
            });
        }
        for (split_id, mut start) in self.starts {
            // SAFETY: the server accepts this description, whose fields are constants except for arguments. Without a
            // handle nothing is allocated, so it only fails if there is no slot.
            let started =
                unsafe { pg_sys::RegisterDynamicBackgroundWorker(&mut start, std::ptr::null_mut()) };
            if !started {
                spawn::warn_no_slot(&WorkerKind::Split(split_id).name());
            }
        }
    }
}
