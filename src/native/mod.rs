//! Capture without PL/pgSQL, in the sessions of writers: the function of a source's triggers if its server has this
//! library. It decides at once that most rows stay, and queues a moving row in ordinary cases. It leaves everything
//! else to the PL/pgSQL function that each table has beside it, which decides for itself: so both have the same
//! results.
//!
//! Everything that this reads and writes belongs to the owner of the trigger's function, and is in the function's
//! schema; it calls nothing that anyone else could have created: it runs with the rights of the writer, and needs
//! none.

mod agent;
mod call;
mod entry;
mod event;
mod heap;
mod queue;
mod row;
mod scope;
mod watch;

use agent::HINT;
use call::NativeCall;
use entry::NativeEntry;
pub use entry::SAMPLE;
use event::{NativeEvent, raise};
use pgrx::prelude::*;
use pgrx::trigger_support::called_as_trigger;
use row::NativeRow;
pub use scope::MOST_BYTES;
use std::ffi::CStr;

const MOVER: &CStr = c"shardmaster_agent.mover";

#[doc(hidden)]
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_shardmaster_capture_1() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

/// The trigger function `capture_<split>_<table>` of a source. Its name tells which tables of the agent belong to it.
/// The number in the symbol is the version of the triggers' arguments and of the objects beside the function: triggers
/// outlive an upgrade of this library, which has to keep the old symbol.
///
/// # Safety
/// The server calls this.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shardmaster_capture_1(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the server calls this; there is nothing to drop here.
    unsafe { call::make(decide(fcinfo)) };
    // The result of an AFTER trigger is ignored.
    pg_sys::Datum::null()
}

/// Handles simple cases, and returns the call that remains to be made.
#[pg_guard]
unsafe extern "C-unwind" fn decide(fcinfo: pg_sys::FunctionCallInfo) -> NativeCall {
    // SAFETY: the server calls this as a function that returns a trigger: nobody else can call such a function.
    unsafe {
        if !called_as_trigger(fcinfo) {
            raise("not called by the trigger manager", "It is the function of a split's triggers.");
        }
        let function = (*(*fcinfo).flinfo).fn_oid;
        let data = &*(*fcinfo).context.cast::<pg_sys::TriggerData>();
        let event = NativeEvent::of(data.tg_event);
        // The function's owner can attach it to a trigger of another kind, which provides no rows.
        if !event.suits(data.tg_event) {
            raise("a capture trigger must be AFTER a change of a row, or for TRUNCATE", HINT);
        }
        match event {
            NativeEvent::Truncate => entry::truncated(function),
            event => of_row(function, data, event),
        }
    }
}

/// # Safety
/// A trigger of this function is being called for a row.
unsafe fn of_row(function: pg_sys::Oid, data: &pg_sys::TriggerData, event: NativeEvent) -> NativeCall {
    // SAFETY: the slots hold the row's versions while the trigger runs: the new version of an update has a slot of its
    // own.
    unsafe {
        let entry = entry::of(function, data);
        let (new, old) = match event {
            NativeEvent::Update => (data.tg_newslot, data.tg_trigslot),
            NativeEvent::Insert | NativeEvent::Delete | NativeEvent::Truncate => {
                (data.tg_trigslot, data.tg_trigslot)
            }
        };
        let (new, old) = (NativeRow::new(new), NativeRow::new(old));
        let is_in_scope = entry.is_in_scope(new, old);
        if is_in_scope == Some(false) {
            return std::ptr::null_mut();
        }
        let queued = if is_in_scope == Some(true) { queue(&entry, event, new, old) } else { None };
        match queued {
            Some(at) if at % i64::from(SAMPLE) == 0 => entry.look(),
            Some(_) => std::ptr::null_mut(),
            None => entry.call(event, new, old),
        }
    }
}

/// Queues a change in the ordinary case, and returns its time. Returns None if the PL/pgSQL function has to decide.
///
/// # Safety
/// A trigger is being called for a row.
unsafe fn queue(entry: &NativeEntry, event: NativeEvent, new: NativeRow, old: NativeRow) -> Option<i64> {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        if !is_ordinary() {
            return None;
        }
        let keys = entry.same_keys(new, old)?;
        entry.queue.as_ref()?.insert(event, &keys, entry.as_of)
    }
}

/// Whether the session is a client's, in a transaction in which each statement sees what was committed before it.
///
/// # Safety
/// A transaction is open.
unsafe fn is_ordinary() -> bool {
    // SAFETY: this reads a setting of this session, and the text of another one, which lives until it is set again.
    unsafe {
        if pg_sys::XactIsoLevel != pg_sys::XACT_READ_COMMITTED as i32 {
            return false;
        }
        let mover = pg_sys::GetConfigOption(MOVER.as_ptr(), true, false);
        mover.is_null() || *mover == 0
    }
}
