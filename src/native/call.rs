//! Calls of functions by their oids, with arguments that may be NULL.

use pgrx::prelude::*;
use std::mem::{offset_of, size_of};

/// A prepared call, in the trigger's memory; null if there is none.
pub type NativeCall = pg_sys::FunctionCallInfo;

/// Prepares the call of a function, which runs with its owner's rights if it is declared so.
///
/// # Safety
/// The function exists, and takes these arguments. A trigger is being called.
pub unsafe fn ready(function: pg_sys::Oid, arguments: &[Option<pg_sys::Datum>]) -> NativeCall {
    let size = offset_of!(pg_sys::FunctionCallInfoBaseData, args)
        + arguments.len() * size_of::<pg_sys::NullableDatum>();
    // SAFETY: the caller keeps the promise above; the call's data have room for its arguments, and are, like what the
    // server keeps for the function, in memory that is freed after the trigger's call.
    unsafe {
        let called = pg_sys::palloc0(size_of::<pg_sys::FmgrInfo>()).cast::<pg_sys::FmgrInfo>();
        pg_sys::fmgr_info(function, called);
        let info = pg_sys::palloc0(size).cast::<pg_sys::FunctionCallInfoBaseData>();
        (*info).flinfo = called;
        // Columns with another collation are not captured here.
        (*info).fncollation = pg_sys::DEFAULT_COLLATION_OID;
        (*info).nargs = arguments.len() as i16;
        let places = (*info).args.as_mut_ptr();
        for (at, argument) in arguments.iter().enumerate() {
            *places.add(at) = pg_sys::NullableDatum {
                value: argument.unwrap_or(pg_sys::Datum::null()),
                isnull: argument.is_none(),
            };
        }
        info
    }
}

/// Makes the call.
///
/// # Safety
/// No frame between the server's and this one has anything to drop: an error of the function jumps over them. As a
/// panic it would lose its SQLSTATE, because a panic only carries those of the server.
pub unsafe fn make(call: NativeCall) {
    // SAFETY: the caller keeps the promise above, and the call was prepared.
    unsafe {
        if !call.is_null()
            && let Some(function) = (*(*call).flinfo).fn_addr
        {
            function(call);
        }
    }
}
