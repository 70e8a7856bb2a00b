//! What a trigger of a partition needs: the columns that it reads, and its queue. It is read from the catalogs once,
//! and again whenever the server reports that any of it has changed.

use super::agent::{Agent, HINT};
use super::call::{self, NativeCall};
use super::event::{NativeEvent, raise};
use super::queue::Queue;
use super::row::{Form, NativeRow};
use super::scope::{self, ColumnKind, KeySet};
use super::watch::{epoch, watch};
use pgrx::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::num::NonZeroU32;
use std::rc::Rc;

/// The number of entries of a queue between two checks of its lease and size.
pub const SAMPLE: u32 = 64;
/// The greatest number of entries that a session keeps: each partition of a table has its own.
const MOST: usize = 10_000;
const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;

struct EntryColumn {
    number: pg_sys::AttrNumber,
    form: Form,
    /// The base type, without domains.
    type_oid: pg_sys::Oid,
}

pub struct NativeEntry {
    by: EntryColumn,
    kind: Option<ColumnKind>,
    keys: Vec<EntryColumn>,
    scope: Rc<KeySet>,
    /// `None` if only PL/pgSQL makes entries.
    pub queue: Option<Queue>,
    row_function: pg_sys::Oid,
    look_function: pg_sys::Oid,
    /// The epoch at which the entry was read.
    pub as_of: u64,
}

thread_local! {
    static KNOWN: RefCell<(u64, HashMap<u32, Rc<NativeEntry>>)> = RefCell::default();
}

/// Returns the entry of the trigger that has been called.
///
/// # Safety
/// A trigger of this function is being called for a row.
pub unsafe fn of(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> Rc<NativeEntry> {
    // SAFETY: the caller keeps the promise above: the trigger is one of the relation.
    let trigger = unsafe { (*data.tg_trigger).tgoid.to_u32() };
    let epoch = epoch();
    let known =
        KNOWN.with_borrow(|(as_of, known)| if *as_of == epoch { known.get(&trigger).cloned() } else { None });
    if let Some(known) = known {
        return known;
    }
    // SAFETY: the caller keeps the promise above.
    let entry = Rc::new(unsafe { find(function, data) });
    KNOWN.with_borrow_mut(|(as_of, known)| {
        if *as_of != entry.as_of || known.len() >= MOST {
            known.clear();
            *as_of = entry.as_of;
        }
        known.insert(trigger, Rc::clone(&entry));
    });
    entry
}

/// # Safety
/// The promise of `of` holds.
unsafe fn find(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> NativeEntry {
    // SAFETY: the caller keeps the promise above; the relation is locked, so its columns and triggers stay.
    unsafe {
        let table = (*data.tg_relation).rd_id;
        let agent = Agent::of(function);
        watch(&[table]);
        let arguments = arguments(data);
        let (buckets, numbers) = arguments.split_first().unwrap_or((&0, &[]));
        let root = root(&*data.tg_trigger, table);
        let columns: Vec<EntryColumn> = numbers.iter().map(|number| column(root, table, *number)).collect();
        let mut columns = columns.into_iter();
        let by = columns.next().unwrap_or_else(|| raise(lost("arguments", table), HINT));
        let keys: Vec<EntryColumn> = columns.collect();
        let row_function = agent.function("_row");
        let types: Vec<pg_sys::Oid> = keys.iter().map(|key| key.type_oid).collect();
        let taken = [vec![pg_sys::CHAROID, by.type_oid, by.type_oid], types.clone(), types.clone()].concat();
        // The table's owner may have dropped the trigger that protected its columns: no value is passed as one of
        // another type.
        if types.is_empty() || agent.arguments(row_function) != taken {
            raise(lost("columns", table), HINT);
        }
        let scope_table = agent.relation(&format!("scope_{}_s", agent.split));
        watch(&[scope_table]);
        let is_utf8 = pg_sys::GetDatabaseEncoding() == UTF8;
        let kind = if is_utf8 { ColumnKind::of(by.type_oid) } else { None };
        let scope = match scope_table {
            pg_sys::Oid::INVALID => Rc::new(KeySet::Unknown),
            table => scope::of(table, NonZeroU32::new((*buckets).unsigned_abs())),
        };
        let as_of = epoch();
        let queue = Queue::find(&agent, &types);
        let look_function = agent.function("_look");
        if !agent.arguments(look_function).is_empty() {
            raise(lost("functions", table), HINT);
        }
        NativeEntry { by, kind, keys, scope, queue, row_function, look_function, as_of }
    }
}

fn lost(what: &str, table: pg_sys::Oid) -> String {
    format!("a capture trigger of relation {} has lost its {what}", table.to_u32())
}

/// Returns the numbers that the trigger was created with: that of the buckets, the shard-by column, the columns of the
/// key.
///
/// # Safety
/// The trigger is being called.
unsafe fn arguments(data: &pg_sys::TriggerData) -> Vec<i32> {
    // SAFETY: the caller keeps the promise above; the arguments are C strings.
    unsafe {
        let trigger = &*data.tg_trigger;
        let number = |at: usize| CStr::from_ptr(*trigger.tgargs.add(at)).to_str().ok()?.parse().ok();
        let count = usize::try_from(trigger.tgnargs).unwrap_or(0);
        (0..count).map_while(number).collect()
    }
}

/// Returns the table for which a trigger was created, and of which a partition has a clone: columns are numbered as in
/// that table.
///
/// # Safety
/// The trigger belongs to a table that is locked.
unsafe fn root(trigger: &pg_sys::Trigger, table: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: each row of the catalog is read while it exists; what is opened here is closed here.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let triggers = pg_sys::table_open(pg_sys::TriggerRelationId, lock);
        let (mut wanted, mut root) = (trigger.tgoid, table);
        while wanted != pg_sys::Oid::INVALID {
            let mut key = pg_sys::ScanKeyData::default();
            pg_sys::ScanKeyInit(
                &mut key,
                pg_sys::Anum_pg_trigger_oid as pg_sys::AttrNumber,
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                pg_sys::F_OIDEQ.into(),
                wanted.into_datum().unwrap_or(pg_sys::Datum::null()),
            );
            let index = pg_sys::Oid::from(pg_sys::TriggerOidIndexId);
            let scan = pg_sys::systable_beginscan(triggers, index, true, std::ptr::null_mut(), 1, &mut key);
            let tuple = pg_sys::systable_getnext(scan);
            wanted = pg_sys::Oid::INVALID;
            if !tuple.is_null() {
                let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_trigger>();
                (wanted, root) = (row.tgparentid, row.tgrelid);
            }
            pg_sys::systable_endscan(scan);
        }
        pg_sys::table_close(triggers, lock);
        root
    }
}

/// Returns the column of a partition that has the name of one of its parent: renaming changes both, under a lock of
/// both.
///
/// # Safety
/// The partition is locked.
unsafe fn column(root: pg_sys::Oid, table: pg_sys::Oid, number: i32) -> EntryColumn {
    // SAFETY: these are look-ups in the system cache, with a name that it has returned.
    unsafe {
        let number = pg_sys::AttrNumber::try_from(number).unwrap_or(0);
        let number = if root == table {
            number
        } else {
            let name = pg_sys::get_attname(root, number, true);
            if name.is_null() { 0 } else { pg_sys::get_attnum(table, name) }
        };
        let type_oid = pg_sys::get_atttype(table, number);
        if number <= 0 || type_oid == pg_sys::Oid::INVALID {
            raise(lost("column", table), HINT);
        }
        let type_oid = pg_sys::getBaseType(type_oid);
        EntryColumn { number, form: Form::of(type_oid), type_oid }
    }
}

impl NativeEntry {
    /// Whether one of the two versions is in the scope, or None if this cannot be decided here.
    pub fn is_in_scope(&self, new: NativeRow, old: NativeRow) -> Option<bool> {
        let has = |row: NativeRow| match row.value(self.by.number) {
            None => Some(false),
            // SAFETY: this is a value of the column, which is of this kind; the row holds it.
            Some(value) => self.scope.has(&unsafe { self.kind?.key(value) }?),
        };
        match has(new)? {
            true => Some(true),
            false if new.is(old) => Some(false),
            false => has(old),
        }
    }

    /// Returns the key of a row that has kept it, or None if it has changed, or if this cannot be decided here.
    pub fn same_keys(&self, new: NativeRow, old: NativeRow) -> Option<Vec<pg_sys::Datum>> {
        let key = |column: &EntryColumn| {
            let value = new.value(column.number)?;
            let before = if new.is(old) { value } else { old.value(column.number)? };
            // SAFETY: these are values of the column.
            unsafe { column.form.same(value, before)?.then_some(value) }
        };
        self.keys.iter().map(key).collect()
    }

    /// Prepares a call of the PL/pgSQL function that does everything.
    ///
    /// # Safety
    /// A trigger is being called.
    pub unsafe fn call(&self, event: NativeEvent, new: NativeRow, old: NativeRow) -> NativeCall {
        let mut arguments = vec![Some(pg_sys::Datum::from(event.letter()))];
        arguments.extend([new, old].map(|row| row.value(self.by.number)));
        for row in [new, old] {
            arguments.extend(self.keys.iter().map(|key| row.value(key.number)));
        }
        // SAFETY: the function exists with as many arguments of these types; the entry is current.
        unsafe { call::ready(self.row_function, &arguments) }
    }

    /// Prepares a call of the PL/pgSQL function that checks the lease and the size.
    ///
    /// # Safety
    /// A trigger is being called.
    pub unsafe fn look(&self) -> NativeCall {
        // SAFETY: the function exists, and has no arguments.
        unsafe { call::ready(self.look_function, &[]) }
    }
}

/// Prepares the PL/pgSQL call for TRUNCATE.
///
/// # Safety
/// It is a trigger's function, called for a statement.
pub unsafe fn truncated(function: pg_sys::Oid) -> NativeCall {
    // SAFETY: the caller keeps the promise above; all arguments but the first are NULL.
    unsafe {
        let agent = Agent::of(function);
        let row_function = agent.function("_row");
        let types = agent.arguments(row_function);
        if types.first() != Some(&pg_sys::CHAROID) {
            raise("the function for rows of a capture trigger has other arguments", HINT);
        }
        let mut arguments = vec![None; types.len()];
        arguments[0] = Some(pg_sys::Datum::from(NativeEvent::Truncate.letter()));
        call::ready(row_function, &arguments)
    }
}
