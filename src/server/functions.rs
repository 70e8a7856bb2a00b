//! The functions of this database by their name, without SPI: also where no statement may run.

use pgrx::pg_sys;

/// Calls `look` for each function of the name, with its row and `pg_proc`, which is locked meanwhile.
///
/// # Safety
/// A transaction is open and has not failed.
pub unsafe fn each_named(name: &[u8], mut look: impl FnMut(pg_sys::HeapTuple, pg_sys::Relation)) {
    // SAFETY: each row of the catalog is read while it exists; what is opened here is closed here. The name lives as
    // long as the scan.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let functions = pg_sys::table_open(pg_sys::ProcedureRelationId, lock);
        let mut wanted = pg_sys::NameData::default();
        for (to, byte) in wanted.data.iter_mut().take(pg_sys::NAMEDATALEN as usize - 1).zip(name) {
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
            look(tuple, functions);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(functions, lock);
    }
}
