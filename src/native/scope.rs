//! The scope of a split, as a session keeps it: read once from the agent's table.
//!
//! It need not be read again. All of it was committed before the first trigger existed, and from then on it only
//! shrinks, when keys return to their shard. So keys that it does not contain stay; for keys that it contains, the
//! state of the split decides.

use super::heap::is_plain_from;
use super::row::Form;
use pgrx::prelude::*;
use shardmaster_client::{Key, shard_for};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::rc::Rc;

/// The greatest number of bytes of keys that a session keeps; for a larger scope, each row is left to PL/pgSQL.
pub const MOST_BYTES: usize = 4 << 20;
/// The memory that a key needs beside its own bytes.
const OF_KEY: usize = 32;

/// The kinds of shard-by columns whose values are equal exactly if their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    SmallInt,
    Integer,
    BigInt,
    Text,
    Uuid,
}

impl ColumnKind {
    /// Returns the kind of a type without domains.
    pub fn of(type_oid: pg_sys::Oid) -> Option<ColumnKind> {
        match type_oid {
            pg_sys::INT2OID => Some(ColumnKind::SmallInt),
            pg_sys::INT4OID => Some(ColumnKind::Integer),
            pg_sys::INT8OID => Some(ColumnKind::BigInt),
            pg_sys::TEXTOID | pg_sys::VARCHAROID => Some(ColumnKind::Text),
            pg_sys::UUIDOID => Some(ColumnKind::Uuid),
            _ => None,
        }
    }

    /// Returns a value as a key, or None if it is not stored plainly in its row.
    ///
    /// # Safety
    /// The value is of this kind, and lives as long as the result.
    pub unsafe fn key<'a>(self, value: pg_sys::Datum) -> Option<Key<'a>> {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            match self {
                ColumnKind::SmallInt => Some(Key::BigInt((value.value() as i16).into())),
                ColumnKind::Integer => Some(Key::BigInt((value.value() as i32).into())),
                ColumnKind::BigInt => Some(Key::BigInt(value.value() as i64)),
                ColumnKind::Text => {
                    let bytes = Form::Varying.bytes(value)?;
                    std::str::from_utf8(bytes).ok().map(Key::Text)
                }
                ColumnKind::Uuid => Form::Fixed(16).bytes(value)?.try_into().ok().map(Key::Uuid),
            }
        }
    }
}

/// The keys of a scope.
pub enum KeySet {
    Numbers(HashSet<i64>),
    Texts(HashSet<Box<str>>),
    Uuids(HashSet<[u8; 16]>),
    /// The numbers of the buckets, out of this many.
    Buckets(NonZeroU32, HashSet<i64>),
    /// The scope is larger than a session keeps, or of another type than the column.
    Unknown,
}

impl KeySet {
    /// Returns None if it is not known here.
    pub fn has(&self, key: &Key<'_>) -> Option<bool> {
        match (self, key) {
            (KeySet::Numbers(keys), Key::BigInt(key)) => Some(keys.contains(key)),
            (KeySet::Texts(keys), Key::Text(key)) => Some(keys.contains(*key)),
            (KeySet::Uuids(keys), Key::Uuid(key)) => Some(keys.contains(key)),
            (KeySet::Buckets(count, buckets), _) => Some(buckets.contains(&shard_for(*key, *count).into())),
            (KeySet::Numbers(_) | KeySet::Texts(_) | KeySet::Uuids(_) | KeySet::Unknown, _) => None,
        }
    }
}

thread_local! {
    /// The scopes by table and number of buckets. A trigger gives that number, so that triggers with different numbers
    /// do not share a scope.
    static KNOWN: RefCell<HashMap<(u32, u32), Rc<KeySet>>> = RefCell::default();
    /// Whether one of these tables was changed; in the end it is dropped.
    static IS_STALE: Cell<bool> = const { Cell::new(false) };
}

/// Is called whenever the server reads invalidations, so it only records them.
pub fn invalidated(relation: pg_sys::Oid) {
    let is_known = KNOWN.with(|known| {
        known.try_borrow().is_ok_and(|known| known.keys().any(|(of, _)| *of == relation.to_u32()))
    });
    if is_known || relation == pg_sys::Oid::INVALID {
        IS_STALE.set(true);
    }
}

/// Returns the keys in a table of the agent, or the numbers of buckets.
///
/// # Safety
/// A transaction is open. The table is one of scopes, of keys or buckets.
pub unsafe fn of(table: pg_sys::Oid, buckets: Option<NonZeroU32>) -> Rc<KeySet> {
    if IS_STALE.replace(false) {
        KNOWN.with_borrow_mut(HashMap::clear);
    }
    let key = (table.to_u32(), buckets.map_or(0, NonZeroU32::get));
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return known;
    }
    // SAFETY: the caller keeps the promise above.
    let set = Rc::new(unsafe { read(table, buckets) });
    KNOWN.with_borrow_mut(|known| known.insert(key, Rc::clone(&set)));
    set
}

/// # Safety
/// The promise of `of` holds.
unsafe fn read(table: pg_sys::Oid, buckets: Option<NonZeroU32>) -> KeySet {
    const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: the caller keeps the promise above; what is opened here is closed here, or by the end of a transaction
    // that fails. The newest snapshot shows what was committed before the triggers existed, whatever the transaction's
    // snapshot shows. The values of a row are copied while it exists.
    unsafe {
        let relation = pg_sys::relation_open(table, LOCK);
        // The owner may have replaced the table by another relation, which cannot be read like this.
        if !is_plain_from(relation, &[]) {
            pg_sys::relation_close(relation, LOCK);
            return KeySet::Unknown;
        }
        // A table whose first column was dropped or contains NULL is not usable either: its values are not keys.
        let kind = match pg_sys::get_atttype(table, 1) {
            pg_sys::Oid::INVALID => None,
            type_oid => ColumnKind::of(pg_sys::getBaseType(type_oid)),
        };
        let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::InvalidOid,
            false,
            snapshot,
            0,
            std::ptr::null_mut(),
        );
        let columns = (*(*relation).rd_att).natts as usize;
        let (mut values, mut nulls) = (vec![pg_sys::Datum::null(); columns], vec![false; columns]);
        let mut found =
            FoundScope { numbers: HashSet::new(), texts: HashSet::new(), uuids: HashSet::new(), bytes: 0 };
        let mut is_known = kind.is_some();
        while is_known {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            pg_sys::heap_deform_tuple(tuple, (*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            is_known = match (kind, nulls.first(), values.first()) {
                (Some(kind), Some(false), Some(value)) => kind.key(*value).is_some_and(|key| found.add(&key)),
                _ => false,
            };
            pgrx::check_for_interrupts!();
        }
        pg_sys::systable_endscan(scan);
        pg_sys::UnregisterSnapshot(snapshot);
        pg_sys::relation_close(relation, LOCK);
        match (is_known, kind, buckets) {
            (true, Some(ColumnKind::Integer), Some(count)) => KeySet::Buckets(count, found.numbers),
            (true, Some(ColumnKind::SmallInt | ColumnKind::Integer | ColumnKind::BigInt), None) => {
                KeySet::Numbers(found.numbers)
            }
            (true, Some(ColumnKind::Text), None) => KeySet::Texts(found.texts),
            (true, Some(ColumnKind::Uuid), None) => KeySet::Uuids(found.uuids),
            (true | false, _, _) => KeySet::Unknown,
        }
    }
}

struct FoundScope {
    numbers: HashSet<i64>,
    texts: HashSet<Box<str>>,
    uuids: HashSet<[u8; 16]>,
    bytes: usize,
}

impl FoundScope {
    /// Returns false if the scope is too large.
    fn add(&mut self, key: &Key<'_>) -> bool {
        let bytes = match key {
            Key::BigInt(key) => {
                self.numbers.insert(*key);
                8
            }
            Key::Text(key) => {
                self.texts.insert((*key).into());
                key.len()
            }
            Key::Uuid(key) => {
                self.uuids.insert(*key);
                16
            }
        };
        self.bytes += bytes + OF_KEY;
        self.bytes <= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_a_set_of_its_own_kind_alone() {
        let numbers = KeySet::Numbers(HashSet::from([7]));
        assert_eq!(numbers.has(&Key::BigInt(7)), Some(true));
        assert_eq!(numbers.has(&Key::BigInt(8)), Some(false));
        assert_eq!(numbers.has(&Key::Text("7")), None);
        assert_eq!(KeySet::Unknown.has(&Key::BigInt(7)), None);
    }

    #[test]
    fn a_key_of_any_kind_has_a_bucket() {
        let count = NonZeroU32::new(16).unwrap();
        let bucket = i64::from(shard_for("a", count));
        let set = KeySet::Buckets(count, HashSet::from([bucket]));
        assert_eq!(set.has(&Key::Text("a")), Some(true));
    }

    #[test]
    fn a_session_keeps_no_more_than_so_many_bytes() {
        let mut found =
            FoundScope { numbers: HashSet::new(), texts: HashSet::new(), uuids: HashSet::new(), bytes: 0 };
        let long = "x".repeat(MOST_BYTES - OF_KEY);
        assert!(found.add(&Key::Text(&long)));
        assert!(!found.add(&Key::Text("")));
    }
}
