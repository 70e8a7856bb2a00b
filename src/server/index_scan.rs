//! Reads rows of the catalog by an index, without a statement: beginning and ending a statement costs many times more
//! than the index scan. It sees what a statement of SPI would see. An index that cannot be used properly is no error:
//! the caller then uses a statement.

use crate::majors;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;
use std::thread::LocalKey;

const SCHEMA: &CStr = c"shardmaster";
const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
/// The lock mode on closing: what was locked stays locked until the transaction ends, like a plan's tables.
const KEEP: pg_sys::LOCKMODE = pg_sys::NoLock as pg_sys::LOCKMODE;

/// A unique index over texts, and what is read of the row that it leads to.
pub struct TextIndex {
    table: &'static CStr,
    name: &'static CStr,
    keys: &'static [&'static CStr],
    /// The index does not contain rows in which this column is not NULL.
    only_null: Option<&'static CStr>,
    columns: &'static [&'static CStr],
    known: RefCell<Option<(u64, Option<Rc<KnownIndex>>)>>,
}

/// The index cannot be used for now: it is missing, invalid, or another one, or the table has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable;

/// The numbers of index and columns.
struct KnownIndex {
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    /// The collation of each key.
    collations: Vec<pg_sys::Oid>,
    columns: Vec<pg_sys::AttrNumber>,
}

thread_local! {
    /// Incremented with each invalidation of a known table or index.
    static EPOCH: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<Vec<pg_sys::Oid>> = const { RefCell::new(Vec::new()) };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Handles an invalidation. It is called wherever the server reads invalidations, so it only sets values.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    if relation == pg_sys::Oid::INVALID || WATCHED.with_borrow(|watched| watched.contains(&relation)) {
        EPOCH.set(EPOCH.get() + 1);
    }
}

/// Watches a relation from now on: what is read of it later is valid as of an epoch.
fn watch(relation: pg_sys::Oid) {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: this is a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    WATCHED.with_borrow_mut(|watched| {
        if !watched.contains(&relation) {
            watched.push(relation);
        }
    });
}

/// A transaction by its number, as in rows and snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid(u32);

impl Xid {
    /// Whether it precedes another one. Numbers wrap around: for two that are half of the range apart the answer is
    /// no. So it is for the first three, which are no transactions.
    pub fn precedes(self, other: Xid) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        self.0 >= pg_sys::TransactionId::FIRST_NORMAL.into_inner() && distance > 0 && distance < 1 << 31
    }
}

/// Returns the oldest transaction that is running for the current statement: all before it have ended, also for all
/// later statements.
pub fn oldest_running() -> Xid {
    // SAFETY: this is called in a transaction, and read before another snapshot is taken.
    unsafe { Xid((*pg_sys::GetTransactionSnapshot()).xmin.into()) }
}

/// A row, for as long as it is read.
pub struct IndexedRow {
    slot: *mut pg_sys::TupleTableSlot,
    known: Rc<KnownIndex>,
}

impl IndexedRow {
    /// Returns a column by its position in `columns`, from 0, or None if it is NULL.
    pub fn text(&self, column: usize) -> Option<String> {
        let number = *self.known.columns.get(column)?;
        let mut is_null = false;
        // SAFETY: the slot has a row, and the table has the column, of type text; it is copied before the slot is
        // cleared.
        unsafe {
            let value = pg_sys::slot_getattr(self.slot, number.into(), &mut is_null);
            String::from_datum(value, is_null)
        }
    }

    /// Moves to the row with these keys. Returns false if there is none.
    ///
    /// # Safety
    /// The scan has as many keys, and is of the table that the slot is for.
    unsafe fn look<const N: usize>(&self, scan: pg_sys::IndexScanDesc, wanted: [&str; N]) -> bool {
        let values = wanted.map(|key| key.into_datum().unwrap_or(pg_sys::Datum::null()));
        let mut keys = [pg_sys::ScanKeyData::default(); N];
        // SAFETY: the caller keeps the promise above. Equality of texts takes two of them, which live until they are
        // freed below: a scan reads its keys for as long as it runs.
        unsafe {
            for (at, (key, value)) in keys.iter_mut().zip(values).enumerate() {
                pg_sys::ScanKeyEntryInitialize(
                    key,
                    0,
                    at as pg_sys::AttrNumber + 1,
                    pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                    pg_sys::InvalidOid,
                    self.known.collations[at],
                    pg_sys::F_TEXTEQ.into(),
                    value,
                );
            }
            pg_sys::index_rescan(scan, keys.as_mut_ptr(), N as i32, std::ptr::null_mut(), 0);
            let is_there =
                pg_sys::index_getnext_slot(scan, pg_sys::ScanDirection::ForwardScanDirection, self.slot);
            for value in values {
                pg_sys::pfree(value.cast_mut_ptr());
            }
            is_there
        }
    }

    /// Returns the transaction that has written it.
    pub fn written_by(&self) -> Xid {
        // SAFETY: this is a heap row in a slot for one, whose header was read for its visibility.
        unsafe {
            let tuple = pg_sys::ExecFetchSlotHeapTuple(self.slot, false, std::ptr::null_mut());
            Xid((*(*tuple).t_data).t_choice.t_heap.t_xmin.into())
        }
    }
}

/// Table and index, both locked.
struct OpenIndex {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
}

impl TextIndex {
    pub const fn new(
        table: &'static CStr,
        name: &'static CStr,
        keys: &'static [&'static CStr],
        only_null: Option<&'static CStr>,
        columns: &'static [&'static CStr],
    ) -> TextIndex {
        TextIndex { table, name, keys, only_null, columns, known: RefCell::new(None) }
    }

    fn known(&self) -> Option<Rc<KnownIndex>> {
        let epoch = EPOCH.get();
        if let Some((as_of, known)) = self.known.borrow().as_ref()
            && *as_of == epoch
        {
            return known.clone();
        }
        let table = relation_of_catalog(self.table)?;
        watch(table);
        let known = self.find(table).map(Rc::new);
        // An invalidation that came meanwhile makes it be searched again.
        *self.known.borrow_mut() = Some((epoch, known.clone()));
        known
    }

    /// Checks that everything is as it should be, which holds until an invalidation comes.
    fn find(&self, table: pg_sys::Oid) -> Option<KnownIndex> {
        // SAFETY: this runs in a transaction, with open relations; a locked table keeps its indexes.
        unsafe {
            let relation = pg_sys::try_relation_open(table, LOCK);
            if relation.is_null() {
                return None;
            }
            let known = if is_plain(relation) { self.find_index(table) } else { None };
            pg_sys::relation_close(relation, KEEP);
            known
        }
    }

    /// # Safety
    /// The table is open.
    unsafe fn find_index(&self, table: pg_sys::Oid) -> Option<KnownIndex> {
        // SAFETY: this reads the system cache, with names that end with a zero.
        let column = |name: &CStr| unsafe {
            let number = pg_sys::get_attnum(table, name.as_ptr());
            (number > 0).then_some(number)
        };
        let keys = self.keys.iter().map(|name| column(name)).collect::<Option<Vec<_>>>()?;
        let columns = self.columns.iter().map(|name| column(name)).collect::<Option<Vec<_>>>()?;
        let only_null = match self.only_null {
            Some(name) => Some(column(name)?),
            None => None,
        };
        // SAFETY: as above.
        let is_text = |number: &i16| unsafe { pg_sys::get_atttype(table, *number) } == pg_sys::TEXTOID;
        if !columns.iter().chain(&keys).all(is_text) {
            return None;
        }
        let index = relation_of_catalog(self.name)?;
        watch(index);
        // SAFETY: the index exists, on some table, which is checked next. It is closed before anything else is done.
        unsafe {
            let relation = pg_sys::try_relation_open(index, LOCK);
            if relation.is_null() {
                return None;
            }
            let collations = collations(relation, table, &keys, only_null);
            pg_sys::relation_close(relation, KEEP);
            Some(KnownIndex { table, index, collations: collations?, columns })
        }
    }

    fn open(&self) -> Option<(Rc<KnownIndex>, OpenIndex)> {
        // A granted lock also delivers invalidations of earlier changes.
        for _ in 0..3 {
            let known = self.known()?;
            let epoch = EPOCH.get();
            // SAFETY: this runs in a transaction; the index belongs to the table, which keeps it while it is locked.
            unsafe {
                let table = pg_sys::try_relation_open(known.table, LOCK);
                if !table.is_null() && EPOCH.get() == epoch && self.is_as_of(epoch) {
                    return Some((
                        known.clone(),
                        OpenIndex { table, index: pg_sys::index_open(known.index, LOCK) },
                    ));
                }
                if !table.is_null() {
                    pg_sys::relation_close(table, KEEP);
                }
            }
        }
        None
    }

    fn is_as_of(&self, epoch: u64) -> bool {
        self.known.borrow().as_ref().is_some_and(|(as_of, _)| *as_of == epoch)
    }

    /// Reads the rows with these keys, as a statement would that begins now, and calls `read` for each one, which must
    /// not call the server. There are as many keys as the index has.
    pub fn rows<'a, const N: usize>(
        index: &'static LocalKey<TextIndex>,
        keys: impl Iterator<Item = [&'a str; N]>,
        mut read: impl FnMut([&'a str; N], &IndexedRow),
    ) -> Result<(), Unusable> {
        let opened = index.with(|index| if index.keys.len() == N { index.open() } else { None });
        let (known, opened) = opened.ok_or(Unusable)?;
        // SAFETY: what is opened here is closed here; an error ends the (sub)transaction, which closes and pops what
        // is left. The snapshot is the active one until the scan has ended.
        unsafe {
            begin_statement();
            let snapshot = pg_sys::GetActiveSnapshot();
            let scan = majors::index_beginscan(opened.table, opened.index, snapshot, N as i32);
            let slot = pg_sys::table_slot_create(opened.table, std::ptr::null_mut());
            let row = IndexedRow { slot, known };
            for wanted in keys {
                if row.look(scan, wanted) {
                    read(wanted, &row);
                }
                pgrx::check_for_interrupts!();
            }
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            pg_sys::index_endscan(scan);
            pg_sys::index_close(opened.index, KEEP);
            pg_sys::relation_close(opened.table, KEEP);
            pg_sys::PopActiveSnapshot();
        }
        Ok(())
    }
}

/// Makes the snapshot active that a statement of SPI would have, including what this transaction has done so far.
///
/// # Safety
/// A transaction is open, and the caller pops the snapshot.
unsafe fn begin_statement() {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        if pg_sys::GetTopTransactionIdIfAny() != pg_sys::TransactionId::INVALID {
            pg_sys::CommandCounterIncrement();
        }
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
}

/// Returns the oid of a relation of the catalog by its name, or None if there is none.
pub fn relation_of_catalog(name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: this reads the system cache, with names that end with a zero.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(SCHEMA.as_ptr(), true);
        if schema == pg_sys::Oid::INVALID {
            return None;
        }
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (oid != pg_sys::Oid::INVALID).then_some(oid)
}

/// Whether all rows of a table are in its own heap, and its owner may read all of them.
///
/// # Safety
/// The relation is open.
unsafe fn is_plain(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let row = &*(*relation).rd_rel;
        row.relkind == pg_sys::RELKIND_RELATION as std::ffi::c_char
            && row.relam == pg_sys::HEAP_TABLE_AM_OID
            && !row.relhassubclass
            && !row.relrowsecurity
            && pg_sys::pg_class_aclcheck(
                (*relation).rd_id,
                row.relowner,
                pg_sys::ACL_SELECT as pg_sys::AclMode,
            ) == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Returns the collations of the keys, or None if it is not an index of these keys that any snapshot may use.
///
/// # Safety
/// The relation is open.
unsafe fn collations(
    index: pg_sys::Relation,
    table: pg_sys::Oid,
    keys: &[i16],
    only_null: Option<i16>,
) -> Option<Vec<pg_sys::Oid>> {
    // SAFETY: the caller keeps the promise above; an index has a row of its own, and as many columns, operator
    // families and collations as that row has.
    unsafe {
        let (class, row) = (&*(*index).rd_rel, (*index).rd_index.as_ref()?);
        let is_usable =
            row.indisvalid && row.indisready && row.indislive && row.indisunique && !row.indcheckxmin;
        if class.relam != pg_sys::BTREE_AM_OID || row.indrelid != table || !is_usable {
            return None;
        }
        if row.indnkeyatts as usize != keys.len() || row.indkey.values.as_slice(keys.len()) != keys {
            return None;
        }
        let families = std::slice::from_raw_parts((*index).rd_opfamily, keys.len());
        if families.iter().any(|family| *family != pg_sys::TEXT_BTREE_FAM_OID) || !has_only(index, only_null)
        {
            return None;
        }
        Some(std::slice::from_raw_parts((*index).rd_indcollation, keys.len()).to_vec())
    }
}

/// Whether an index has all rows, or those in which this column is NULL.
///
/// # Safety
/// The index is open.
unsafe fn has_only(index: pg_sys::Relation, only_null: Option<i16>) -> bool {
    // SAFETY: the caller keeps the promise above; each node has the type of its tag.
    unsafe {
        let conditions = pg_sys::RelationGetIndexPredicate(index);
        let Some(column) = only_null else { return conditions.is_null() };
        if conditions.is_null() || (*conditions).length != 1 {
            return false;
        }
        let node = pg_sys::list_nth(conditions, 0).cast::<pg_sys::Node>();
        if (*node).type_ != pg_sys::NodeTag::T_NullTest {
            return false;
        }
        let test = &*node.cast::<pg_sys::NullTest>();
        let of = test.arg.cast::<pg_sys::Node>();
        test.nulltesttype == pg_sys::NullTestType::IS_NULL
            && (*of).type_ == pg_sys::NodeTag::T_Var
            && (*of.cast::<pg_sys::Var>()).varattno == column
    }
}

#[cfg(test)]
mod tests {
    use super::Xid;

    #[test]
    fn numbers_of_transactions_come_round_again() {
        let precedes = |one, other| Xid(one).precedes(Xid(other));
        assert!(precedes(3, 4) && precedes(1_000, 1_000 + (1 << 31) - 1) && precedes(u32::MAX, 3));
        assert!(
            !precedes(4, 4)
                && !precedes(5, 4)
                && !precedes(3, u32::MAX)
                && !precedes(1_000, 1_000 + (1 << 31))
        );
        // A frozen row once had a number of its own, of which nothing is known.
        assert!(!precedes(2, 1_000));
    }
}
