//! The extension's processes as the server's process table shows them. Nothing here allocates server memory or raises
//! an error, so that it may run in a commit callback.

use pgrx::pg_sys;
use std::ffi::{CStr, c_int};

/// The kind of a worker. Its name is the `backend_type` in `pg_stat_activity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerKind {
    Launcher,
    Coordinator,
    LeaseExpirer,
    TwoPhaseRecovery,
    LookupWorker,
    References,
    Inquirer,
    Jobs,
    Split(i64),
}

const LAUNCHER: &str = "shardmaster launcher";
const COORDINATOR: &str = "shardmaster coordinator";
const LEASE_EXPIRER: &str = "shardmaster lease expirer";
const TWO_PHASE_RECOVERY: &str = "shardmaster two-phase recovery";
const LOOKUP_WORKER: &str = "shardmaster lookup";
const REFERENCES: &str = "shardmaster reference tables";
const INQUIRER: &str = "shardmaster inquirer";
const JOBS: &str = "shardmaster jobs";
const SPLIT: &str = "shardmaster split ";

impl WorkerKind {
    pub fn name(self) -> String {
        match self {
            WorkerKind::Launcher => LAUNCHER.into(),
            WorkerKind::Coordinator => COORDINATOR.into(),
            WorkerKind::LeaseExpirer => LEASE_EXPIRER.into(),
            WorkerKind::TwoPhaseRecovery => TWO_PHASE_RECOVERY.into(),
            WorkerKind::LookupWorker => LOOKUP_WORKER.into(),
            WorkerKind::References => REFERENCES.into(),
            WorkerKind::Inquirer => INQUIRER.into(),
            WorkerKind::Jobs => JOBS.into(),
            WorkerKind::Split(id) => format!("{SPLIT}{id}"),
        }
    }

    fn parse(name: &str) -> Option<WorkerKind> {
        match name {
            LAUNCHER => Some(WorkerKind::Launcher),
            COORDINATOR => Some(WorkerKind::Coordinator),
            LEASE_EXPIRER => Some(WorkerKind::LeaseExpirer),
            TWO_PHASE_RECOVERY => Some(WorkerKind::TwoPhaseRecovery),
            LOOKUP_WORKER => Some(WorkerKind::LookupWorker),
            REFERENCES => Some(WorkerKind::References),
            INQUIRER => Some(WorkerKind::Inquirer),
            JOBS => Some(WorkerKind::Jobs),
            _ => name.strip_prefix(SPLIT)?.parse().ok().map(WorkerKind::Split),
        }
    }
}

/// A running worker. It may end at any moment.
#[derive(Clone, Copy)]
pub struct Process {
    pub pid: i32,
    pub kind: WorkerKind,
    latch: *mut pg_sys::Latch,
}

impl Process {
    /// Ends the process's wait.
    pub fn wake(&self) {
        // SAFETY: the latch is part of the process table, which lives as long as the server. If its process has ended
        // meanwhile, the process that has the entry now wakes once needlessly, which every user of a latch must
        // expect.
        unsafe { pg_sys::SetLatch(self.latch) };
    }

    /// Asks the process to end; it does so at its next check for interrupts.
    pub fn terminate(&self) {
        unsafe extern "C" {
            fn kill(pid: pg_sys::pid_t, signal: c_int) -> c_int;
        }
        // SAFETY: this is a system call without memory. A process that has ended already is not found, as intended.
        unsafe { kill(self.pid, pg_sys::SIGTERM as c_int) };
    }
}

/// Returns the extension's workers that are connected to a database; the launcher is connected to none, `InvalidOid`.
pub fn of_database(database: pg_sys::Oid) -> Vec<Process> {
    let mut found = Vec::new();
    // SAFETY: ProcGlobal and its array are set up at server start and never move. Other processes write entries while
    // this reads them: an inconsistent entry belongs to a worker that is just starting or ending, and its pid is
    // checked again below.
    unsafe {
        let global = pg_sys::ProcGlobal;
        for i in 0..(*global).allProcCount as usize {
            let entry = (*global).allProcs.add(i);
            if (&raw const (*entry).databaseId).read_volatile() != database {
                continue;
            }
            let pid = (&raw const (*entry).pid).read_volatile();
            if pid == 0 {
                continue;
            }
            if let Some(kind) = kind_of(pid) {
                found.push(Process { pid, kind, latch: &raw mut (*entry).procLatch });
            }
        }
    }
    found
}

/// Whether a worker of this kind runs in a database.
pub fn runs(database: pg_sys::Oid, kind: WorkerKind) -> bool {
    of_database(database).iter().any(|process| process.kind == kind)
}

/// Returns the kind of the background worker with this pid, if it is one of the extension.
fn kind_of(pid: c_int) -> Option<WorkerKind> {
    // SAFETY: this returns NULL or a NUL-terminated copy in a static buffer, which is read before the next call.
    unsafe {
        let name = pg_sys::GetBackgroundWorkerTypeByPid(pid);
        if name.is_null() {
            return None;
        }
        WorkerKind::parse(CStr::from_ptr(name).to_str().ok()?)
    }
}
