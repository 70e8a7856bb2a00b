//! What a trigger of a partition is about: which columns it reads, and where it queues. Found in the catalogs once, and
//! again whenever the server says that something of it has changed.

use super::call::{self, Call};
use super::queue::Queue;
use super::row::{Form, Row};
use super::scope::{self, Kind, Set};
use super::{Event, raise};
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::num::NonZeroU32;
use std::rc::Rc;

/// Entries of a queue between two looks at its lease and size.
pub const SAMPLE: u32 = 64;
/// What a session remembers at most: partitions of a table each have their own.
const MOST: usize = 10_000;
const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;
const HINT: &str = "The split notices it and copies again once its triggers are whole: roll it back and start it again, or drop the triggers whose names begin with 00_shardmaster.";

struct Column {
    number: pg_sys::AttrNumber,
    form: Form,
    /// Without the domains around it.
    type_oid: pg_sys::Oid,
}

pub struct Entry {
    by: Column,
    kind: Option<Kind>,
    keys: Vec<Column>,
    scope: Rc<Set>,
    /// None: entries are made by PL/pgSQL alone.
    pub queue: Option<Queue>,
    row_function: pg_sys::Oid,
    look_function: pg_sys::Oid,
    /// The epoch of what was found.
    pub as_of: u64,
}

thread_local! {
    /// One more with each invalidation of a relation that something here was found of.
    static EPOCH: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<HashSet<u32>> = RefCell::default();
    static KNOWN: RefCell<(u64, HashMap<u32, Rc<Entry>>)> = RefCell::default();
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Called wherever the server reads invalidations, so it does nothing but remember.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let is_watched = WATCHED.with(|watched| {
        // One that is being added to is looked through again.
        watched.try_borrow().map_or(true, |watched| watched.contains(&relation.to_u32()))
    });
    if is_watched || relation == pg_sys::Oid::INVALID {
        EPOCH.set(EPOCH.get() + 1);
    }
    scope::invalidated(relation);
}

pub fn epoch() -> u64 {
    EPOCH.get()
}

/// From now on: what is found of it later is found as of an epoch.
pub fn watch(relations: &[pg_sys::Oid]) {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    WATCHED.with_borrow_mut(|watched| watched.extend(relations.iter().map(|relation| relation.to_u32())));
}

/// What the trigger is about that has been called.
///
/// # Safety
/// A trigger of this function, called for a row.
pub unsafe fn of(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> Rc<Entry> {
    // SAFETY: as the caller promises: the trigger is one of the relation.
    let trigger = unsafe { (*data.tg_trigger).tgoid.to_u32() };
    let epoch = epoch();
    let known =
        KNOWN.with_borrow(|(as_of, known)| if *as_of == epoch { known.get(&trigger).cloned() } else { None });
    if let Some(known) = known {
        return known;
    }
    // SAFETY: as the caller promises.
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
unsafe fn find(function: pg_sys::Oid, data: &pg_sys::TriggerData) -> Entry {
    // SAFETY: as the caller promises; the relation is locked, so its columns and triggers stay.
    unsafe {
        let table = (*data.tg_relation).rd_id;
        let agent = Agent::of(function);
        watch(&[table]);
        let arguments = arguments(data);
        let (buckets, numbers) = arguments.split_first().unwrap_or((&0, &[]));
        let root = root(&*data.tg_trigger, table);
        let columns: Vec<Column> = numbers.iter().map(|number| column(root, table, *number)).collect();
        let mut columns = columns.into_iter();
        let by = columns.next().unwrap_or_else(|| raise(lost("arguments", table), HINT));
        let keys: Vec<Column> = columns.collect();
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
        let kind = if is_utf8 { Kind::of(by.type_oid) } else { None };
        let scope = match scope_table {
            pg_sys::Oid::INVALID => Rc::new(Set::Unknown),
            table => scope::of(table, NonZeroU32::new((*buckets).unsigned_abs())),
        };
        let as_of = epoch();
        let queue = Queue::find(&agent, &types);
        let look_function = agent.function("_look");
        if !agent.arguments(look_function).is_empty() {
            raise(lost("functions", table), HINT);
        }
        Entry { by, kind, keys, scope, queue, row_function, look_function, as_of }
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
unsafe fn column(root: pg_sys::Oid, table: pg_sys::Oid, number: i32) -> Column {
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
        Column { number, form: Form::of(type_oid), type_oid }
    }
}

impl Entry {
    /// Whether one of both versions is of the scope; None: that is not seen here.
    pub fn is_in_scope(&self, new: Row, old: Row) -> Option<bool> {
        let has = |row: Row| match row.value(self.by.number) {
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
    pub fn same_keys(&self, new: Row, old: Row) -> Option<Vec<pg_sys::Datum>> {
        let key = |column: &Column| {
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
    pub unsafe fn call(&self, event: Event, new: Row, old: Row) -> Call {
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
    pub unsafe fn look(&self) -> Call {
        // SAFETY: the function is there, without arguments.
        unsafe { call::ready(self.look_function, &[]) }
    }
}

/// TRUNCATE is told to PL/pgSQL.
///
/// # Safety
/// A trigger's function, called for a statement.
pub unsafe fn truncated(function: pg_sys::Oid) -> Call {
    // SAFETY: as the caller promises; all other arguments than the first are NULL.
    unsafe {
        let agent = Agent::of(function);
        let row_function = agent.function("_row");
        let mut arguments = vec![None; agent.arguments(row_function).len()];
        if let Some(first) = arguments.first_mut() {
            *first = Some(pg_sys::Datum::from(Event::Truncate.letter()));
        }
        call::ready(row_function, &arguments)
    }
}

/// Where a trigger's function is, and what is beside it.
pub struct Agent {
    schema: pg_sys::Oid,
    owner: pg_sys::Oid,
    name: String,
    pub split: i64,
    ordinal: i64,
}

impl Agent {
    /// # Safety
    /// A function that is called.
    unsafe fn of(function: pg_sys::Oid) -> Agent {
        // SAFETY: look-ups in the system cache.
        unsafe {
            let name = pg_sys::get_func_name(function);
            let name = if name.is_null() { "" } else { CStr::from_ptr(name).to_str().unwrap_or_default() };
            let numbers = name.strip_prefix("capture_").and_then(|numbers| numbers.split_once('_'));
            let numbers = numbers.and_then(|(split, ordinal)| split.parse().ok().zip(ordinal.parse().ok()));
            let Some((split, ordinal)) = numbers else {
                raise(format!("function \"{name}\" has not the name of a split's"), HINT);
            };
            let (schema, owner) = (pg_sys::get_func_namespace(function), owner(function));
            Agent { schema, owner, name: name.to_owned(), split, ordinal }
        }
    }

    /// The number of a relation beside it, of the same owner; invalid: there is none.
    pub fn relation(&self, name: &str) -> pg_sys::Oid {
        let Ok(name) = CString::new(name) else { return pg_sys::Oid::INVALID };
        // SAFETY: look-ups in the system cache; the row is read before it is given back.
        unsafe {
            let relation = pg_sys::get_relname_relid(name.as_ptr(), self.schema);
            let cache = pg_sys::SysCacheIdentifier::RELOID as i32;
            let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(relation));
            if tuple.is_null() {
                return pg_sys::Oid::INVALID;
            }
            let is_own =
                (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>()).relowner == self.owner;
            pg_sys::ReleaseSysCache(tuple);
            if is_own { relation } else { pg_sys::Oid::INVALID }
        }
    }

    pub fn queue(&self) -> String {
        format!("queue_{}_{}", self.split, self.ordinal)
    }

    /// The function beside it whose name goes on like this.
    ///
    /// # Safety
    /// In a transaction.
    unsafe fn function(&self, ending: &str) -> pg_sys::Oid {
        let name = format!("{}{ending}", self.name);
        let mut found = pg_sys::Oid::INVALID;
        // SAFETY: rows of a catalog, each read while it is there; what is opened here is closed here. The name lives as
        // long as the scan.
        unsafe {
            let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
            let functions = pg_sys::table_open(pg_sys::ProcedureRelationId, lock);
            let mut wanted = pg_sys::NameData::default();
            for (to, byte) in wanted.data.iter_mut().take(pg_sys::NAMEDATALEN as usize - 1).zip(name.bytes())
            {
                *to = byte as std::ffi::c_char;
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
                if row.pronamespace == self.schema && row.proowner == self.owner {
                    found = row.oid;
                }
            }
            pg_sys::systable_endscan(scan);
            pg_sys::table_close(functions, lock);
        }
        if found == pg_sys::Oid::INVALID {
            raise(format!("function \"{name}\" of a capture trigger is missing"), HINT);
        }
        found
    }

    /// The types of what a function takes.
    ///
    /// # Safety
    /// The function is there.
    unsafe fn arguments(&self, function: pg_sys::Oid) -> Vec<pg_sys::Oid> {
        let (mut types, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: a look-up in the system cache, which makes an array of so many.
        unsafe {
            pg_sys::get_func_signature(function, &mut types, &mut count);
            std::slice::from_raw_parts(types, usize::try_from(count).unwrap_or(0)).to_vec()
        }
    }
}

/// Whose a function is.
///
/// # Safety
/// In a transaction.
unsafe fn owner(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a look-up in the system cache; the row is read before it is given back.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return pg_sys::Oid::INVALID;
        }
        let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>()).proowner;
        pg_sys::ReleaseSysCache(tuple);
        owner
    }
}
