//! Capture without PL/pgSQL, in the sessions of writers: the function of a source's triggers where its server has this
//! library. Says at once of most rows that they stay, and queues a row that moves where nothing is special about it. All
//! else it leaves to the function in PL/pgSQL that each table has beside it, which judges by itself: so both do the same.
//!
//! Whatever it reads and writes belongs to the owner of the trigger's function, in the function's schema, and it calls
//! nothing that anybody could have made: it runs with the rights of whoever writes, and asks for none.

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

/// The trigger function `capture_<split>_<table>` of a source. Its name says which tables of the agent are its own. The
/// number in the symbol says what the arguments of triggers mean and what the agent has beside it: triggers outlive a new
/// version of this library, which has to keep the old symbol.
///
/// # Safety
/// Called by the server.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shardmaster_capture_1(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: called by the server; here is nothing to drop.
    unsafe { call::make(decide(fcinfo)) };
    // Of an AFTER trigger's result nothing is made.
    pg_sys::Datum::null()
}

/// Does what is simple; what is left to call.
#[pg_guard]
unsafe extern "C-unwind" fn decide(fcinfo: pg_sys::FunctionCallInfo) -> NativeCall {
    // SAFETY: called by the server, as a function that returns a trigger: nobody else can call one.
    unsafe {
        if !called_as_trigger(fcinfo) {
            raise("not called by the trigger manager", "It is the function of a split's triggers.");
        }
        let function = (*(*fcinfo).flinfo).fn_oid;
        let data = &*(*fcinfo).context.cast::<pg_sys::TriggerData>();
        let event = NativeEvent::of(data.tg_event);
        // Whoever owns it can have it called by a trigger of another kind, which gives no rows.
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
/// Called for a row, by a trigger of this function.
unsafe fn of_row(function: pg_sys::Oid, data: &pg_sys::TriggerData, event: NativeEvent) -> NativeCall {
    // SAFETY: the slots hold the row's versions while the trigger runs: the new one of an update in a slot of its own.
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

/// Queues a change where nothing is special about it, and when; None: the other function is to say.
///
/// # Safety
/// As above.
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

/// Whether the session is a client's, in a transaction whose statements see what was committed before each.
///
/// # Safety
/// In a transaction.
unsafe fn is_ordinary() -> bool {
    // SAFETY: reads a setting of this session, and the text of another one, which lives until it is set again.
    unsafe {
        if pg_sys::XactIsoLevel != pg_sys::XACT_READ_COMMITTED as i32 {
            return false;
        }
        let mover = pg_sys::GetConfigOption(MOVER.as_ptr(), true, false);
        mover.is_null() || *mover == 0
    }
}
