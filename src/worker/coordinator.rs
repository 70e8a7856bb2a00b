//! Keeps one worker running for each split that has work, the sweeper, and the settler, the looker and what follows
//! reference tables while they have work.

use super::backoff::Backoff;
use super::start::{accept_signals, pin_settings};
use super::supervisor::{Child, Supervisor};
use super::{inquirer, lock, looker, references, settler, splits, sweeper};
use crate::catalog::reference;
use crate::execution;
use crate::guc;
use crate::lookups;
use crate::server::process::{self, Kind};
use crate::server::spawn::{self, LIBRARY};
use crate::server::{database, txn, wait};
use crate::words::counted;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Sessions wake the coordinator, and so does the end of a worker that it started. The
/// clock is for what nobody announces: a prepared transaction, a restored dump.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Workers that somebody else started end without a word.
const LOOK_AT_STRANGERS: Duration = Duration::from_secs(1);
const RETRY_SLOTS: Duration = Duration::from_secs(1);

/// How the coordinator of a database is started.
pub fn builder(database: pg_sys::Oid) -> BackgroundWorkerBuilder {
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
        let sweeper = coordinator.keep_sweeper();
        let pause = match txn::transaction(look) {
            Some(work) => {
                let others = coordinator.keep_settler(&work).min(coordinator.keep_looker(&work));
                let others = others.min(coordinator.keep_references(&work));
                let others = others.min(coordinator.keep_inquirer(&work));
                coordinator.serve(&work).min(sweeper).min(others)
            }
            None => {
                wait::report_idle(splits::WAITS_FOR_EXTENSION);
                splits::until_created(LOOK_AGAIN)
            }
        };
        wait::sleep(pause);
    }
}

/// What one look at the catalog shows.
struct Work {
    splits: Vec<splits::Open>,
    locked: BTreeSet<i64>,
    role: Option<pg_sys::Oid>,
    /// Something is left of statements in two phases.
    is_left: bool,
    /// There are lookup indexes, or something is left of them.
    looks_up: bool,
    /// Tables are to be the same on all shards.
    has_references: bool,
    /// Shards are to be asked which decisions they know.
    asks: bool,
}

/// None while the extension is not installed.
fn look() -> Option<Work> {
    splits::catalog_exists().then(|| Work {
        splits: splits::with_work(),
        locked: lock::holders().into_iter().map(|(id, _)| id).collect(),
        role: spawn::worker_role(),
        is_left: !execution::orphans().is_empty() || !execution::to_look_at().is_empty(),
        looks_up: lookups::has_work(),
        has_references: reference::any(),
        asks: inquirer::has_work(),
    })
}

/// What the coordinator remembers of a split that has work.
#[derive(Default)]
struct Memory {
    pause: Backoff,
    progress: String,
}

#[derive(Default)]
struct Coordinator {
    sweeper: Supervisor,
    settler: Supervisor,
    looker: Supervisor,
    references: Supervisor,
    inquirer: Supervisor,
    children: BTreeMap<i64, Child>,
    memory: BTreeMap<i64, Memory>,
    short_of_slots: bool,
}

impl Coordinator {
    /// Starts the sweeper if it is missing; how long nothing needs to be done.
    fn keep_sweeper(&mut self) -> Duration {
        keep(&mut self.sweeper, Kind::Sweeper, sweeper::builder)
    }

    /// The same with the settler, where it has work.
    fn keep_settler(&mut self, work: &Work) -> Duration {
        keep_while(work.is_left, &mut self.settler, Kind::Settler, settler::builder)
    }

    /// The same with the looker.
    fn keep_looker(&mut self, work: &Work) -> Duration {
        keep_while(work.looks_up, &mut self.looker, Kind::Looker, looker::builder)
    }

    /// The same with what follows reference tables.
    fn keep_references(&mut self, work: &Work) -> Duration {
        keep_while(work.has_references, &mut self.references, Kind::References, references::builder)
    }

    /// The same with who asks the shards.
    fn keep_inquirer(&mut self, work: &Work) -> Duration {
        keep_while(work.asks, &mut self.inquirer, Kind::Inquirer, inquirer::builder)
    }

    /// Starts the workers that are missing; how long nothing needs to be done.
    fn serve(&mut self, work: &Work) -> Duration {
        self.remember(&work.splits);
        self.reap();
        // A worker that has just been started has no lock yet, one that a session or an
        // earlier coordinator started is no child: together they are all.
        let mut running: BTreeSet<i64> = self.children.keys().copied().collect();
        let strangers = work.locked.difference(&running).next().is_some();
        running.extend(&work.locked);
        let mut sleep = if strangers { LOOK_AT_STRANGERS } else { LOOK_AGAIN };
        // A shard that is silent holds each of its finished splits up for as long as a worker
        // waits for it: these take no place of a split that moves rows, and one at a time.
        let mut beside =
            work.splits.iter().filter(|split| split.is_housekeeping && running.contains(&split.id)).count();
        for &splits::Open { id, keeps_out, ends, is_housekeeping, .. } in &work.splits {
            if running.contains(&id) {
                continue;
            }
            let has_place = match is_housekeeping {
                true => beside == 0,
                false => running.len() - beside < guc::max_split_workers() + usize::from(ends),
            };
            if let Some(left) = self.memory.get(&id).and_then(|memory| memory.pause.left()) {
                sleep = sleep.min(left);
                // Nobody else takes its place meanwhile: its clients wait for its worker.
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

    /// A split that has got on since the last look, or is asked for something else, is
    /// not failing for the same reason again: its pauses begin anew.
    fn remember(&mut self, splits: &[splits::Open]) {
        self.memory.retain(|id, _| splits.iter().any(|split| split.id == *id));
        for split in splits {
            let memory = self.memory.entry(split.id).or_default();
            if memory.progress != split.progress {
                *memory = Memory { pause: Backoff::default(), progress: split.progress.clone() };
            }
        }
    }

    /// Forgets the workers that have ended. A split that has no work any more needs no
    /// pause.
    fn reap(&mut self) {
        let memory = &mut self.memory;
        self.children.retain(|id, child| {
            let Some(lived) = child.ended() else { return true };
            if let Some(memory) = memory.get_mut(id) {
                memory.pause.ended(lived);
            }
            false
        });
    }

    /// False if the server has no slot for another worker.
    fn start(&mut self, id: i64, role: Option<pg_sys::Oid>) -> bool {
        if let Some(child) = Child::start(spawn::split_worker(id, database::id(), role)) {
            self.children.insert(id, child);
            self.short_of_slots = false;
            return true;
        }
        if !self.short_of_slots {
            spawn::warn_no_slot(&Kind::Split(id).name());
        }
        self.short_of_slots = true;
        false
    }
}

/// The same with one that ends when it is through: the next one needs no pause then.
fn keep_while(
    has_work: bool,
    supervisor: &mut Supervisor,
    kind: Kind,
    builder: fn(pg_sys::Oid) -> BackgroundWorkerBuilder,
) -> Duration {
    if has_work {
        return keep(supervisor, kind, builder);
    }
    if !supervisor.runs() {
        *supervisor = Supervisor::default();
    }
    LOOK_AGAIN
}

/// Starts a worker of which there is one, if it is missing; how long nothing needs to be done.
fn keep(
    supervisor: &mut Supervisor,
    kind: Kind,
    builder: fn(pg_sys::Oid) -> BackgroundWorkerBuilder,
) -> Duration {
    let started = supervisor.runs();
    if started || process::runs(database::id(), kind) {
        return LOOK_AGAIN;
    }
    if let Some(left) = supervisor.pause() {
        return left;
    }
    supervisor.start(&kind.name(), builder(database::id()));
    LOOK_AGAIN
}
