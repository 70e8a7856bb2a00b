//! The requirements for a relation that is read and written here without a statement.

use pgrx::prelude::*;

/// Whether it is a table that begins with these columns, and has all rows in its own heap.
///
/// # Safety
/// The relation is open.
pub unsafe fn is_plain_from(relation: pg_sys::Relation, columns: &[pg_sys::Oid]) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let row = &*(*relation).rd_rel;
        let has = |(at, of): (usize, &pg_sys::Oid)| {
            pg_sys::get_atttype((*relation).rd_id, at as pg_sys::AttrNumber + 1) == *of
        };
        row.relkind as u8 == pg_sys::RELKIND_RELATION
            && row.relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
            && row.relam == pg_sys::HEAP_TABLE_AM_OID
            && !row.relhassubclass
            && !row.relispartition
            && !row.relrowsecurity
            && columns.iter().enumerate().all(has)
    }
}
