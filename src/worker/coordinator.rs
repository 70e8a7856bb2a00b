//! Keeps one worker running for each split that has work, and expires leases.

use super::pause::Pause;
use super::process::Kind;
use super::{LIBRARY, accept_signals, lock, pin_settings, plan, split, sweep_clock, txn, wait};
use crate::guc;
use crate::placement::sweep;
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, DynamicBackgroundWorker,
};
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Sessions wake the coordinator, and so does the end of a worker that it started. The
/// clock is for what nobody announces: a prepared transaction, a restored dump.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Workers that somebody else started end without a word.
const LOOK_AT_STRANGERS: Duration = Duration::from_secs(1);
const RETRY_SLOTS: Duration = Duration::from_secs(1);

/// How the coordinator of a database is started.
pub fn describe(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    let name = Kind::Coordinator.name();
    BackgroundWorkerBuilder::new(&name)
        .set_type(&name)
        .set_library(LIBRARY)
        .set_function("shardmaster_coordinator_main")
        .enable_spi_access()
        .set_argument(Some(pg_sys::Datum::from(database.to_u32())))
}

/// Entry point of the coordinator; the argument is the database's oid.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_coordinator_main(arg: pg_sys::Datum) {
    accept_signals();
    let database = pg_sys::Oid::from_u32(arg.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    pin_settings();
    // A coordinator may outlive its launcher: then the next launcher's one gives way.
    if !txn::transaction(|| lock::try_lock(lock::COORDINATOR)) {
        return;
    }
    let mut coordinator = Coordinator::default();
    loop {
        let pause = match txn::transaction(look) {
            Some(work) => coordinator.serve(&work).min(coordinator.sweep()),
            None => {
                wait::report_idle("waiting for CREATE EXTENSION shardmaster");
                LOOK_AGAIN
            }
        };
        wait::sleep(pause);
    }
}

/// What one look at the catalog shows.
struct Work {
    splits: Vec<plan::Open>,
    locked: BTreeSet<i64>,
    role: Option<pg_sys::Oid>,
}

/// None while the extension is not installed.
fn look() -> Option<Work> {
    plan::catalog_exists().then(|| Work {
        splits: plan::with_work(),
        locked: lock::holders().into_iter().map(|(id, _)| id).collect(),
        role: plan::worker_role(),
    })
}

struct Child {
    worker: DynamicBackgroundWorker,
    started: Instant,
}

/// What the coordinator remembers of a split that has work.
#[derive(Default)]
struct Memory {
    pause: Pause,
    progress: String,
}

#[derive(Default)]
struct Coordinator {
    /// The last batch of leases.
    swept: Option<Instant>,
    children: BTreeMap<i64, Child>,
    memory: BTreeMap<i64, Memory>,
    short_of_slots: bool,
}

impl Coordinator {
    /// One batch of leases, if it is time; how long until the next. The interval may
    /// have been set shorter since the clock was.
    fn sweep(&mut self) -> Duration {
        let waited = self.swept.map_or(Duration::MAX, |swept| swept.elapsed());
        if sweep_clock::left() == Duration::ZERO || waited >= guc::lease_sweep_interval() {
            sweep_clock::set(txn::transaction(sweep::turn));
            self.swept = Some(Instant::now());
        }
        sweep_clock::left()
    }

    /// Starts the workers that are missing; how long nothing needs to be done.
    fn serve(&mut self, work: &Work) -> Duration {
        self.remember(&work.splits);
        self.bury();
        // A worker that has just been started has no lock yet, one that a session or an
        // earlier coordinator started is no child: together they are all.
        let mut running: BTreeSet<i64> = self.children.keys().copied().collect();
        let strangers = work.locked.difference(&running).next().is_some();
        running.extend(&work.locked);
        let mut sleep = if strangers { LOOK_AT_STRANGERS } else { LOOK_AGAIN };
        for &plan::Open { id, .. } in &work.splits {
            if running.contains(&id) {
                continue;
            }
            if let Some(left) = self.memory.get(&id).and_then(|memory| memory.pause.left()) {
                sleep = sleep.min(left);
            } else if running.len() < guc::max_split_workers() {
                if !self.start(id, work.role) {
                    sleep = sleep.min(RETRY_SLOTS);
                    break;
                }
                running.insert(id);
            }
        }
        wait::report_idle(&format!(
            "{} of {} splits with work have a worker",
            running.len(),
            work.splits.len()
        ));
        sleep
    }

    /// A split that has got on since the last look, or is asked for something else, is
    /// not failing for the same reason again: its pauses begin anew.
    fn remember(&mut self, splits: &[plan::Open]) {
        self.memory.retain(|id, _| splits.iter().any(|split| split.id == *id));
        for split in splits {
            let memory = self.memory.entry(split.id).or_default();
            if memory.progress != split.progress {
                *memory = Memory { pause: Pause::default(), progress: split.progress.clone() };
            }
        }
    }

    /// Forgets the workers that have ended. A split that has no work any more needs no
    /// pause.
    fn bury(&mut self) {
        let memory = &mut self.memory;
        self.children.retain(|id, child| match child.worker.pid() {
            Ok(_) | Err(BackgroundWorkerStatus::NotYetStarted | BackgroundWorkerStatus::Started) => true,
            Err(
                BackgroundWorkerStatus::Stopped
                | BackgroundWorkerStatus::PostmasterDied
                | BackgroundWorkerStatus::Untracked { .. },
            ) => {
                if let Some(memory) = memory.get_mut(id) {
                    memory.pause.ended(child.started.elapsed());
                }
                false
            }
        });
    }

    /// False if the server has no slot for another worker.
    fn start(&mut self, id: i64, role: Option<pg_sys::Oid>) -> bool {
        // SAFETY: plain variables of this process.
        let (database, me) = unsafe { (pg_sys::MyDatabaseId, pg_sys::MyProcPid) };
        match split::describe(id, database, role).set_notify_pid(me).load_dynamic() {
            Ok(worker) => {
                self.children.insert(id, Child { worker, started: Instant::now() });
                self.short_of_slots = false;
                true
            }
            Err(_) => {
                if !self.short_of_slots {
                    super::warn_no_slot(&Kind::Split(id).name());
                }
                self.short_of_slots = true;
                false
            }
        }
    }
}
