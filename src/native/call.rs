//! Calls of functions by their numbers, with arguments that may be NULL.

use pgrx::prelude::*;
use std::mem::{offset_of, size_of};

/// A call that is to be made, in memory of the trigger's; null: none.
pub type NativeCall = pg_sys::FunctionCallInfo;

/// Makes the call of a function ready, which runs with its owner's rights if it says so.
///
/// # Safety
/// The function exists, and takes these arguments. In the call of a trigger.
pub unsafe fn ready(function: pg_sys::Oid, arguments: &[Option<pg_sys::Datum>]) -> NativeCall {
    let size = offset_of!(pg_sys::FunctionCallInfoBaseData, args)
        + arguments.len() * size_of::<pg_sys::NullableDatum>();
    // SAFETY: as the caller promises; the call's data are as long as its arguments need, and like what the server keeps for
    // the function in memory that ends with the trigger's call.
    unsafe {
        let called = pg_sys::palloc0(size_of::<pg_sys::FmgrInfo>()).cast::<pg_sys::FmgrInfo>();
        pg_sys::fmgr_info(function, called);
        let info = pg_sys::palloc0(size).cast::<pg_sys::FunctionCallInfoBaseData>();
        (*info).flinfo = called;
        // Of columns with another collation nothing is captured here.
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

/// Makes it.
///
/// # Safety
/// No frame between the server's and this one has anything to drop: an error of the function's jumps over them. It would
/// lose its SQLSTATE on its way through a panic, which knows the server's own alone.
pub unsafe fn make(call: NativeCall) {
    // SAFETY: as the caller promises, of a call that was made ready.
    unsafe {
        if !call.is_null()
            && let Some(function) = (*(*call).flinfo).fn_addr
        {
            function(call);
        }
    }
}
