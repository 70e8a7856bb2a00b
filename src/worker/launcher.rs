//! Keeps one coordinator running in `shardmaster.database`, once that exists.
//!
//! The launcher itself is connected to no database. If it were, it would end with a fatal error every few seconds
//! while its database does not exist, and would block DROP DATABASE.

use super::coordinator;
use super::start::accept_signals;
use super::supervisor::Supervisor;
use crate::guc;
use crate::server::process::{self, WorkerKind};
use crate::server::{spawn, txn, wait};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::Duration;

/// The interval of checks. CREATE DATABASE also wakes the launcher, and so does the end of its coordinator.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Registers the launcher with the postmaster, which starts it when the server accepts writes, and after a crash at
/// once.
pub fn register() {
    spawn::builder(&WorkerKind::Launcher.name(), "shardmaster_launcher_main")
        .set_restart_time(Some(Duration::from_secs(5)))
        .load();
}

/// Entry point of the launcher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn shardmaster_launcher_main(_arg: pg_sys::Datum) {
    accept_signals();
    BackgroundWorker::connect_worker_to_spi(None, None);
    let mut launcher = Launcher::default();
    loop {
        let pause = launcher.serve();
        wait::sleep(pause);
    }
}

#[derive(Default)]
struct Launcher {
    coordinator: Supervisor,
    /// The database of the current or the last coordinator.
    database: Option<pg_sys::Oid>,
}

impl Launcher {
    /// Starts the coordinator if it is missing. Returns how long nothing needs to be done.
    fn serve(&mut self) -> Duration {
        let started = self.coordinator.runs();
        let name = guc::database();
        let Some(database) = txn::transaction(|| open_database(&name)) else {
            wait::report_idle(&format!("waiting for database \"{name}\""));
            return LOOK_AGAIN;
        };
        wait::report_idle(&format!("keeping a coordinator in database \"{name}\""));
        if started || process::runs(database, WorkerKind::Coordinator) {
            return LOOK_AGAIN;
        }
        // The end of a coordinator in a dropped database does not matter for the one in a new database of that name.
        if self.database.replace(database).is_some_and(|before| before != database) {
            self.coordinator = Supervisor::default();
        }
        if let Some(left) = self.coordinator.pause() {
            return left.min(LOOK_AGAIN);
        }
        self.coordinator.start(&WorkerKind::Coordinator.name(), coordinator::builder(database));
        LOOK_AGAIN
    }
}

/// Returns the database if it exists, accepts connections and is not being dropped.
fn open_database(name: &str) -> Option<pg_sys::Oid> {
    let database = find_database(name)?;
    let tag = pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
        locktag_field3: database.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    // DROP DATABASE holds the conflicting lock from before it ends the extension's workers.
    // SAFETY: the tag is valid; the lock is not waited for, and is released with the transaction.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::RowExclusiveLock as i32, false, true) };
    (taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL).then_some(database)
}

/// Reads pg_database from its first row to its last: in a process without a database, its indexes may not be usable
/// yet.
fn find_database(name: &str) -> Option<pg_sys::Oid> {
    let mut found = None;
    // SAFETY: this is called in a transaction. Table and scan are closed in the order that the server requires; a row
    // is valid until the next one is read, and its name has a NUL.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let table = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
        let (no_snapshot, no_keys) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scan = pg_sys::systable_beginscan(table, pg_sys::InvalidOid, false, no_snapshot, 0, no_keys);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row: pg_sys::Form_pg_database = pg_sys::GETSTRUCT(tuple).cast();
            let datname = CStr::from_ptr((&raw const (*row).datname.data).cast());
            if (*row).datallowconn && datname.to_bytes() == name.as_bytes() {
                found = Some((*row).oid);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, lock);
    }
    found
}
