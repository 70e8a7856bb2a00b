//! Objects of other roles on a table of the catalog. They would run code of those roles when a row is changed, with
//! the rights of the role that changes it, mostly the extension's owner.

use pgrx::prelude::*;
use std::ffi::{CStr, c_char};

/// pg_inherits, its index over parents, and the column of the parents. The numbers are the same in all versions.
const INHERITS: u32 = 2611;
const INHERITS_BY_PARENT: u32 = 2187;
const PARENT: pg_sys::AttrNumber = 2;

/// Whether the current role has the rights of the table's owner, which is the extension's owner. The rows say as which
/// user shards are reached and what is run there, so a right to write tables does not suffice to write this one.
///
/// # Safety
/// The relation is open.
pub unsafe fn may_change(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller keeps the promise above; superusers have the rights of all roles.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), (*(*relation).rd_rel).relowner) }
}

/// Returns what is on an open table, for people, or None if everything on it is the extension's.
///
/// # Safety
/// The relation is open and locked.
pub unsafe fn code_of_others(relation: pg_sys::Relation) -> Option<String> {
    // SAFETY: the caller keeps the promise above, and the relation keeps its description while it is open.
    unsafe {
        let class = &*(*relation).rd_rel;
        if !(*relation).rd_rules.is_null() {
            return Some("a rule".to_owned());
        }
        if class.relrowsecurity || class.relforcerowsecurity {
            return Some("row-level security".to_owned());
        }
        if class.relispartition || inherits((*relation).rd_id, class.relhassubclass) {
            return Some("a table that inherits".to_owned());
        }
        let triggers = (*relation).trigdesc.as_ref()?;
        let count = usize::try_from(triggers.numtriggers).unwrap_or(0);
        std::slice::from_raw_parts(triggers.triggers, count)
            .iter()
            .find_map(|trigger| of_others(trigger, class.relnamespace))
    }
}

/// Whether a table inherits from this one. `may` stays true after the last such table is dropped, so pg_inherits is
/// read.
///
/// # Safety
/// The caller is in a transaction.
unsafe fn inherits(table: pg_sys::Oid, may: bool) -> bool {
    if !may {
        return false;
    }
    // SAFETY: the caller keeps the promise above; what is opened here is closed here.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let inheritance = pg_sys::table_open(pg_sys::Oid::from(INHERITS), lock);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            PARENT,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ.into(),
            pg_sys::Datum::from(table),
        );
        let index = pg_sys::Oid::from(INHERITS_BY_PARENT);
        let scan = pg_sys::systable_beginscan(inheritance, index, true, std::ptr::null_mut(), 1, &mut key);
        let is_there = !pg_sys::systable_getnext(scan).is_null();
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(inheritance, lock);
        is_there
    }
}

/// Returns a description of a trigger that is not the extension's, by its schema. That schema has the functions of the
/// extension's triggers, and no other role may create there.
///
/// # Safety
/// The trigger is one of an open relation.
unsafe fn of_others(trigger: &pg_sys::Trigger, schema: pg_sys::Oid) -> Option<String> {
    // SAFETY: this reads the system cache.
    unsafe {
        if trigger.tgisinternal
            && pg_sys::RI_FKey_trigger_type(trigger.tgfoid) != pg_sys::RI_TRIGGER_NONE as i32
        {
            let other = trigger.tgconstrrelid;
            let is_own = pg_sys::get_rel_namespace(other) == schema;
            return (!is_own).then(|| {
                let schema = name(pg_sys::get_namespace_name(pg_sys::get_rel_namespace(other)));
                format!("a foreign key of table \"{schema}\".\"{}\"", name(pg_sys::get_rel_name(other)))
            });
        }
        // This trigger belongs to a deferrable unique constraint.
        if trigger.tgisinternal && trigger.tgfoid == pg_sys::Oid::from(pg_sys::F_UNIQUE_KEY_RECHECK) {
            return None;
        }
        let is_own = pg_sys::get_func_namespace(trigger.tgfoid) == schema;
        (!is_own).then(|| format!("trigger \"{}\"", name(trigger.tgname)))
    }
}

/// # Safety
/// The text is NUL-terminated, or NULL.
unsafe fn name(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller keeps the promise above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
