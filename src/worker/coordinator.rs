//! Keeps one worker running for each split that has work, and each service that has.

use super::services::{self, SERVICES};
use super::supervisor::{self, BETWEEN_STARTS, Child, Supervisor};
use super::{lock, service, splits};
use crate::guc;
use crate::server::process::{self, WorkerKind};
use crate::server::retry::Backoff;
use crate::server::{database, spawn, txn, wait};
use crate::words::counted;
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Sessions wake the coordinator, and so does the end of a worker that it started. The clock is for events without a
/// wake-up: a prepared transaction, a restored dump.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The interval while workers run that others have started: these end without a wake-up.
const LOOK_AT_STRANGERS: Duration = Duration::from_secs(1);
const RETRY_SLOTS: Duration = Duration::from_secs(1);

/// Returns how the coordinator of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
    service::builder(WorkerKind::Coordinator, "shardmaster_coordinator_main", database)
}

/// Entry point of the coordinator; the argument is the database's oid. A coordinator may outlive its launcher: then
/// the next launcher's one ends.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_coordinator_main(arg: pg_sys::Datum) {
    service::serve(WorkerKind::Coordinator, arg, || {
        let mut coordinator = Coordinator::default();
        Box::new(move || {
            let others = coordinator.keep_services();
            Some(match txn::transaction(look) {
                Some(work) => coordinator.serve(&work).min(others),
                None => {
                    wait::report_idle(splits::WAITS_FOR_EXTENSION);
                    splits::until_created(LOOK_AGAIN)
                }
            })
        })
    });
}

/// The result of reading the catalog once.
struct CoordinatorLook {
    splits: Vec<splits::ToServe>,
    locked: BTreeSet<i64>,
    role: Option<pg_sys::Oid>,
}

/// Reads the catalog. Returns None while the extension is not installed.
fn look() -> Option<CoordinatorLook> {
    splits::catalog_exists().then(|| CoordinatorLook {
        splits: splits::with_work(),
        locked: lock::holders().into_iter().map(|(id, _)| id).collect(),
        role: spawn::worker_role(),
    })
}

/// What the coordinator remembers of a split that has work.
struct SplitMemory {
    pause: Backoff,
    progress: String,
}

#[derive(Default)]
struct Coordinator {
    services: [Supervisor; SERVICES.len()],
    children: BTreeMap<i64, Child>,
    memory: BTreeMap<i64, SplitMemory>,
    short_of_slots: bool,
}

impl Coordinator {
    /// Starts missing services that have work. Returns how long nothing needs to be done.
    fn keep_services(&mut self) -> Duration {
        let each = SERVICES.iter().zip(services::wanted()).zip(&mut self.services);
        each.map(|((service, has_work), supervisor)| keep(has_work, supervisor, service.kind))
            .fold(LOOK_AGAIN, Duration::min)
    }

    /// Starts the missing workers. Returns how long nothing needs to be done.
    fn serve(&mut self, work: &CoordinatorLook) -> Duration {
        self.remember(&work.splits);
        self.reap();
        // A worker that has just been started has no lock yet, and one that a session or an earlier coordinator
        // started is not a child: together they are all.
        let mut running: BTreeSet<i64> = self.children.keys().copied().collect();
        let strangers = work.locked.difference(&running).next().is_some();
        running.extend(&work.locked);
        let mut sleep = if strangers { LOOK_AT_STRANGERS } else { LOOK_AGAIN };
        // A silent shard delays each of its finished splits for as long as a worker waits for it: these take no place
        // of a split that moves rows, and run one at a time.
        let mut beside =
            work.splits.iter().filter(|split| split.is_housekeeping && running.contains(&split.id)).count();
        for &splits::ToServe { id, keeps_out, ends, is_housekeeping, .. } in &work.splits {
            if running.contains(&id) {
                continue;
            }
            let has_place = if is_housekeeping {
                beside == 0
            } else {
                running.len() - beside < guc::max_split_workers() + usize::from(ends)
            };
            if let Some(left) = self.memory.get(&id).and_then(|memory| memory.pause.left()) {
                sleep = sleep.min(left);
                // No other split takes its place meanwhile: its clients wait for its worker.
                if keeps_out {
                    running.insert(id);
                }
            } else if has_place {
                if !self.start(id, work.role) {
                    sleep = sleep.min(RETRY_SLOTS);
                    break;
                }
                beside += usize::from(is_housekeeping);
                running.insert(id);
            }
        }
        wait::report_idle(&format!(
            "{} with work, workers: {}",
            counted(work.splits.len(), "split", "splits"),
            running.len()
        ));
        sleep
    }

    /// Notes the splits. The pauses of a split that has advanced since the last check, or of which something else is
    /// requested, begin anew: it does not fail repeatedly for the same reason.
    fn remember(&mut self, splits: &[splits::ToServe]) {
        self.memory.retain(|id, _| splits.iter().any(|split| split.id == *id));
        for split in splits {
            if self.memory.get(&split.id).is_none_or(|memory| memory.progress != split.progress) {
                let memory = SplitMemory { pause: BETWEEN_STARTS, progress: split.progress.clone() };
                self.memory.insert(split.id, memory);
            }
        }
    }

    /// Forgets the workers that have ended. A split without work needs no pause any more.
    fn reap(&mut self) {
        let memory = &mut self.memory;
        self.children.retain(|id, child| {
            let Some(lived) = child.ended() else { return true };
            if let Some(memory) = memory.get_mut(id) {
                supervisor::ended(&mut memory.pause, lived);
            }
            false
        });
    }

    /// Starts a worker. Returns false if the server has no slot for it.
    fn start(&mut self, id: i64, role: Option<pg_sys::Oid>) -> bool {
        if let Some(child) = Child::start(spawn::split_worker(id, database::id(), role)) {
            self.children.insert(id, child);
            self.short_of_slots = false;
            return true;
        }
        if !self.short_of_slots {
            spawn::warn_no_slot(&WorkerKind::Split(id).name());
        }
        self.short_of_slots = true;
        false
    }
}

/// Starts a service, if it has work and is missing. Returns how long nothing needs to be done. A service that has
/// ended without work is started without a pause the next time.
fn keep(has_work: bool, supervisor: &mut Supervisor, kind: WorkerKind) -> Duration {
    let runs = supervisor.runs();
    if !has_work {
        if !runs {
            *supervisor = Supervisor::default();
        }
        return LOOK_AGAIN;
    }
    if runs || process::runs(database::id(), kind) {
        return LOOK_AGAIN;
    }
    if let Some(left) = supervisor.pause() {
        return left;
    }
    supervisor.start(&kind.name(), services::builder(kind, database::id()));
    LOOK_AGAIN
}
