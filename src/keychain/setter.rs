//! Whether a session may set credentials at all. It is looked up where statements are analysed, and where one begins; remembered
//! where something else is written to the log: nothing can be looked up there.

use super::statement::NAME;
use crate::majors;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const MAY: u8 = 1;
const MAY_NOT: u8 = 2;

/// Of functions in C, in all versions.
const C_LANGUAGE: pg_sys::Oid = pg_sys::Oid::from_u32(13);

static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);

/// As far as is known: a session that has analysed no such statement yet may.
pub fn may_be_here() -> bool {
    KNOWN.load(Ordering::Relaxed) != MAY_NOT
}

/// Looks it up, for the role that is the current one and for the session's own.
///
/// # Safety
/// In a transaction that has not failed.
pub unsafe fn may() -> bool {
    // SAFETY: as the caller promises.
    let may = unsafe {
        [pg_sys::GetUserId(), pg_sys::GetSessionUserId()]
            .into_iter()
            .any(|role| pg_sys::superuser_arg(role) || may_call(role))
    };
    KNOWN.store(if may { MAY } else { MAY_NOT }, Ordering::Relaxed);
    may
}

/// Whether a role may call a function of this name in C, which superusers alone make.
///
/// # Safety
/// As above.
unsafe fn may_call(role: pg_sys::Oid) -> bool {
    let mut may = false;
    // SAFETY: rows of a catalog, each read while it is there; what is opened here is closed here. The name lives as
    // long as the scan.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let functions = pg_sys::table_open(pg_sys::ProcedureRelationId, lock);
        let mut wanted = pg_sys::NameData::default();
        for (to, byte) in wanted.data.iter_mut().zip(NAME) {
            *to = *byte as std::ffi::c_char;
        }
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_proc_proname as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_NAMEEQ.into(),
            pg_sys::Datum::from(&raw mut wanted),
        );
        let index = pg_sys::Oid::from(pg_sys::ProcedureNameArgsNspIndexId);
        let scan = pg_sys::systable_beginscan(functions, index, true, std::ptr::null_mut(), 1, &mut key);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
            may |= row.prolang == C_LANGUAGE && majors::may_execute(role, row.oid);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(functions, lock);
    }
    may
}
