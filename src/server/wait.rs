//! Waiting with the server's means: every wait ends at once when the process is woken, cancelled or terminated, or
//! when the server is gone.

use crate::clean;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_long};
use std::time::Duration;

/// Waits for this process's latch, at most the given time. Returns whether the latch was set. Cancel and termination
/// leave from here as errors. A worker reads its settings again here after a reload.
pub fn sleep(time: Duration) -> bool {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: MyLatch is this process's own latch.
    let events = unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, milliseconds(time), pg_sys::PG_WAIT_EXTENSION)
    };
    let latch_set = events as u32 & pg_sys::WL_LATCH_SET != 0;
    woken(latch_set);
    latch_set
}

/// Does what follows every wait for the latch. The latch is reset before anything is checked, so that an event in
/// between sets it again.
pub fn woken(latch_set: bool) {
    if latch_set {
        // SAFETY: MyLatch is this process's own latch.
        unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
    }
    pg_sys::check_for_interrupts!();
    reload();
}

/// Returns a time for the server's waits: rounded up, so that no loop spins through the last millisecond.
pub fn milliseconds(time: Duration) -> c_long {
    let longest = c_long::from(i32::MAX);
    c_long::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(longest).min(longest)
}

/// Reads the configuration file if SIGHUP has requested it. A session leaves this to the server's main loop.
pub fn reload() {
    // SAFETY: this is a plain variable of this process.
    if unsafe { !pg_sys::MyBgworkerEntry.is_null() } {
        reload_anywhere();
    }
}

/// Does this also in a session, which a fault holds until the file changes.
pub fn reload_anywhere() {
    // SAFETY: this is a plain variable of this process; the flag is set by the signal handler, hence the volatile
    // access.
    unsafe {
        let pending = &raw mut pg_sys::ConfigReloadPending;
        if pending.read_volatile() != 0 {
            pending.write_volatile(0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// The status of a worker, for programs that depend on it: `pg_stat_activity.application_name`, beside the sentence
/// for people.
#[derive(Clone, Copy, Default)]
pub enum WorkerStatus {
    #[default]
    Working,
    /// It applies changes as they come.
    Following,
    Connecting,
    Waiting,
    /// There is nothing to do until something is requested.
    Idle,
}

impl WorkerStatus {
    fn name(self) -> &'static CStr {
        match self {
            WorkerStatus::Working => c"working",
            WorkerStatus::Following => c"following",
            WorkerStatus::Connecting => c"connecting",
            WorkerStatus::Waiting => c"waiting",
            WorkerStatus::Idle => c"idle",
        }
    }
}

thread_local! {
    static SAID: RefCell<(WorkerStatus, String)> = const { RefCell::new((WorkerStatus::Working, String::new())) };
}

/// Publishes what this worker waits for: `pg_stat_activity.query`, also while a transaction is open and before
/// anything is committed. `state_change` becomes the worker's last sign of life.
pub fn report(text: &str) {
    report_as(WorkerStatus::Waiting, text);
}

/// Works like `report` for a worker with any status.
pub fn report_as(status: WorkerStatus, text: &str) {
    publish(pg_sys::BackendState::STATE_RUNNING, status, text);
}

/// The earlier status, which is published again when this is dropped: a wait is thus reported only as long as it
/// lasts.
pub struct StatusScope(WorkerStatus, String);

/// Keeps the current status for the end of the caller's block.
#[must_use]
pub fn status_scope() -> StatusScope {
    SAID.with_borrow(|(status, text)| StatusScope(*status, text.clone()))
}

impl StatusScope {
    pub fn text(&self) -> &str {
        &self.1
    }
}

impl Drop for StatusScope {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            report_as(self.0, &self.1);
        }
    }
}

/// Works like `report` for a worker that has nothing to do, which monitors should not count as active.
pub fn report_idle(text: &str) {
    publish(pg_sys::BackendState::STATE_IDLE, WorkerStatus::Idle, text);
}

fn publish(state: pg_sys::BackendState::Type, status: WorkerStatus, text: &str) {
    // SAFETY: this is a plain variable of this process. A session shows its client's statement.
    if unsafe { pg_sys::MyBgworkerEntry.is_null() } {
        return;
    }
    let text = clean::printable(text);
    SAID.set((status, text.clone()));
    // SAFETY: the server copies the NUL-terminated name.
    unsafe { pg_sys::pgstat_report_appname(status.name().as_ptr()) };
    show(state, text);
}

/// Publishes the text also in a session, which a fault holds, until its next statement.
pub fn report_anywhere(text: &str) {
    report(text);
    show(pg_sys::BackendState::STATE_RUNNING, clean::printable(text));
}

/// A session's own statement is shown again when this is dropped.
pub struct Instead(());

/// Shows what a session waits for, for as long as it waits.
#[must_use]
pub fn instead_of_statement(text: &str) -> Instead {
    report_anywhere(text);
    Instead(())
}

impl Drop for Instead {
    fn drop(&mut self) {
        // SAFETY: this is a plain variable of this process, and the text of its current statement.
        let statement = unsafe { pg_sys::debug_query_string };
        if std::thread::panicking() || statement.is_null() {
            return;
        }
        // SAFETY: the text is that statement; the server copies it.
        unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, statement) };
    }
}

fn show(state: pg_sys::BackendState::Type, text: String) {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the server copies the NUL-terminated text into its own memory.
    unsafe { pg_sys::pgstat_report_activity(state, text.as_ptr()) };
}
