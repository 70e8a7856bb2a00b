//! A worker that another one starts, keeps, and starts again when it has ended.

use crate::server::retry::Backoff;
use crate::server::spawn::warn_no_slot;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BackgroundWorkerStatus, DynamicBackgroundWorker};
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// A process that lived this long does not end repeatedly for the same reason.
const STABLE: Duration = Duration::from_secs(60);

/// The pauses between two starts. The first end may be chance, or caused by an operator.
pub const BETWEEN_STARTS: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

/// Notes that the process has ended after it lived this long.
pub fn ended(pause: &mut Backoff, lived: Duration) {
    if lived >= STABLE {
        pause.succeeded();
    }
    pause.failed();
}

/// A worker that this process has started.
pub struct Child {
    worker: DynamicBackgroundWorker,
    started: Instant,
}

impl Child {
    /// Starts a worker. This process is woken when the worker starts and when it ends. Returns None if the server has
    /// no slot for another worker.
    pub fn start(worker: BackgroundWorkerBuilder) -> Option<Child> {
        // SAFETY: this is a plain variable of this process.
        let me = unsafe { pg_sys::MyProcPid };
        let worker = worker.set_notify_pid(me).load_dynamic().ok()?;
        Some(Child { worker, started: Instant::now() })
    }

    /// Returns how long it lived, if it has ended.
    pub fn ended(&self) -> Option<Duration> {
        match self.worker.pid() {
            Ok(_) | Err(BackgroundWorkerStatus::NotYetStarted | BackgroundWorkerStatus::Started) => None,
            Err(
                BackgroundWorkerStatus::Stopped
                | BackgroundWorkerStatus::PostmasterDied
                | BackgroundWorkerStatus::Untracked { .. },
            ) => Some(self.started.elapsed()),
        }
    }
}

/// Keeps one worker running.
pub struct Supervisor {
    child: Option<Child>,
    pause: Backoff,
    short_of_slots: bool,
}

impl Default for Supervisor {
    fn default() -> Supervisor {
        Supervisor { child: None, pause: BETWEEN_STARTS, short_of_slots: false }
    }
}

impl Supervisor {
    /// Whether the worker that this process has started still runs; forgets one that has ended.
    pub fn runs(&mut self) -> bool {
        if let Some(lived) = self.child.as_ref().and_then(Child::ended) {
            ended(&mut self.pause, lived);
            self.child = None;
        }
        self.child.is_some()
    }

    /// Returns what is left of the pause before it may be started again.
    pub fn pause(&self) -> Option<Duration> {
        self.pause.left()
    }

    /// Starts the worker, or warns once that the server has no slot for it.
    pub fn start(&mut self, name: &str, worker: BackgroundWorkerBuilder) {
        self.child = Child::start(worker);
        let short = self.child.is_none();
        if short && !self.short_of_slots {
            warn_no_slot(name);
        }
        self.short_of_slots = short;
    }
}
