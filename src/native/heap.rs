//! What a relation has to be that is read and written here without a statement.

use pgrx::prelude::*;

/// A table that begins with these columns, whose rows are all in its own heap.
///
/// # Safety
/// An open relation.
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
