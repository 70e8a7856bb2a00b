//! What a trigger of a partition is about: which columns it reads, and where it queues. Found in the catalogs once, and
//! again whenever the server says that something of it has changed.

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

/// Entries of a queue between two looks at its lease and size.
pub const SAMPLE: u32 = 64;
/// What a session remembers at most: partitions of a table each have their own.
const MOST: usize = 10_000;
const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;

struct EntryColumn {
    number: pg_sys::AttrNumber,
    form: Form,
    /// Without the domains around it.
    type_oid: pg_sys::Oid,
}

pub struct NativeEntry {
    by: EntryColumn,
    kind: Option<ColumnKind>,
    keys: Vec<EntryColumn>,
    scope: Rc<KeySet>,
    /// None: entries are made by PL/pgSQL alone.
    pub queue: Option<Queue>,
    row_function: pg_sys::Oid,
    look_function: pg_sys::Oid,
    /// The epoch of what was found.
    pub as_of: u64,
}

thread_local! {
    static KNOWN: RefCell<(u64, HashMap<u32, Rc<NativeEntry>>)> = RefCell::default();
}

/// What the trigger is about that has been called.
///
/// # Safety
/// A trigger of this function, called for a row.
pub unsafe fn of(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> Rc<NativeEntry> {
    // SAFETY: as the caller promises: the trigger is one of the relation.
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
/// As above.
unsafe fn find(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> NativeEntry {
    // SAFETY: as the caller promises; the relation is locked, so its columns and triggers stay.
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
        // Whoever owns the table may have dropped the trigger that kept its columns: no value goes for one of another type.
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

/// The numbers that a trigger was made with: of buckets, the shard-by column, the columns of the key.
///
/// # Safety
/// A trigger that has been called.
unsafe fn arguments(data: &pg_sys::TriggerData) -> Vec<i32> {
    // SAFETY: as the caller promises; its arguments are C strings.
    unsafe {
        let trigger = &*data.tg_trigger;
        let number = |at: usize| CStr::from_ptr(*trigger.tgargs.add(at)).to_str().ok()?.parse().ok();
        let count = usize::try_from(trigger.tgnargs).unwrap_or(0);
        (0..count).map_while(number).collect()
    }
}

/// The table for which a trigger was made, which a partition has a clone of: its columns are numbered there.
///
/// # Safety
/// A trigger of a table that is locked.
unsafe fn root(trigger: &pg_sys::Trigger, table: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: rows of a catalog, each read while it is there; what is opened here is closed here.
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

/// The column of a partition that has the name of one of its parent's: renaming is of both, under a lock of both.
///
/// # Safety
/// The partition is locked.
unsafe fn column(root: pg_sys::Oid, table: pg_sys::Oid, number: i32) -> EntryColumn {
    // SAFETY: look-ups in the system cache, of a name that it has given.
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
    /// Whether one of both versions is of the scope; None: that is not seen here.
    pub fn is_in_scope(&self, new: NativeRow, old: NativeRow) -> Option<bool> {
        let has = |row: NativeRow| match row.value(self.by.number) {
            None => Some(false),
            // SAFETY: a value of the column, which is of this kind; the row holds it.
            Some(value) => self.scope.has(&unsafe { self.kind?.key(value) }?),
        };
        match has(new)? {
            true => Some(true),
            false if new.is(old) => Some(false),
            false => has(old),
        }
    }

    /// The key of a row that has kept it; None: another one, or that is not seen here.
    pub fn same_keys(&self, new: NativeRow, old: NativeRow) -> Option<Vec<pg_sys::Datum>> {
        let key = |column: &EntryColumn| {
            let value = new.value(column.number)?;
            let before = if new.is(old) { value } else { old.value(column.number)? };
            // SAFETY: values of the column.
            unsafe { column.form.same(value, before)?.then_some(value) }
        };
        self.keys.iter().map(key).collect()
    }

    /// Has PL/pgSQL do all of it.
    ///
    /// # Safety
    /// In the call of a trigger.
    pub unsafe fn call(&self, event: NativeEvent, new: NativeRow, old: NativeRow) -> NativeCall {
        let mut arguments = vec![Some(pg_sys::Datum::from(event.letter()))];
        arguments.extend([new, old].map(|row| row.value(self.by.number)));
        for row in [new, old] {
            arguments.extend(self.keys.iter().map(|key| row.value(key.number)));
        }
        // SAFETY: the function is there with as many arguments, of these types; it was found as of now.
        unsafe { call::ready(self.row_function, &arguments) }
    }

    /// Has PL/pgSQL look at lease and size.
    ///
    /// # Safety
    /// In the call of a trigger.
    pub unsafe fn look(&self) -> NativeCall {
        // SAFETY: the function is there, without arguments.
        unsafe { call::ready(self.look_function, &[]) }
    }
}

/// TRUNCATE is told to PL/pgSQL.
///
/// # Safety
/// A trigger's function, called for a statement.
pub unsafe fn truncated(function: pg_sys::Oid) -> NativeCall {
    // SAFETY: as the caller promises; all other arguments than the first are NULL.
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
