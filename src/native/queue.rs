//! Makes a queue's entries without a statement, in the ordinary case: it locks the barrier, reads the state with a
//! snapshot that is newer than that lock, and writes the entry.

use super::agent::Agent;
use super::event::NativeEvent;
use super::heap::is_plain_from;
use super::row::Form;
use super::watch;
use pgrx::prelude::*;

const READ: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
const WRITE: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
/// Keeps locks until the transaction ends, as a statement does with its tables.
const KEEP: pg_sys::LOCKMODE = pg_sys::NoLock as pg_sys::LOCKMODE;
/// The number of columns before the key: xid, at, op.
const BEFORE_KEY: usize = 3;

/// The objects with which a trigger queues, all of the agent.
pub struct Queue {
    split: i64,
    table: pg_sys::Oid,
    barrier: pg_sys::Oid,
    sequence: pg_sys::Oid,
    side: pg_sys::Oid,
    side_key: pg_sys::Oid,
}

impl Queue {
    /// Returns None if an object is not as it was created: PL/pgSQL then acts by the changed objects.
    ///
    /// # Safety
    /// A transaction is open.
    pub unsafe fn find(agent: &Agent, keys: &[pg_sys::Oid]) -> Option<Queue> {
        let there = |name: &str| {
            let relation = agent.relation(name);
            (relation != pg_sys::Oid::INVALID).then_some(relation)
        };
        let table = there(&agent.queue())?;
        let barrier = there(&format!("barrier_{}", agent.split))?;
        let sequence = there(&format!("queue_{}_seq", agent.split))?;
        let side = there("side")?;
        watch::watch(&[table, barrier, sequence, side]);
        let mut columns = vec![pg_sys::XID8OID, pg_sys::TIMESTAMPTZOID, pg_sys::CHAROID];
        columns.extend(keys);
        // SAFETY: these are relations of the agent, which are opened and closed here.
        unsafe {
            let is_plain =
                with(table, READ, |relation| is_plain(relation, &columns) && has_plain_index(relation));
            if !is_plain || pg_sys::get_rel_relkind(sequence) as u8 != pg_sys::RELKIND_SEQUENCE {
                return None;
            }
            let of_side = [pg_sys::INT8OID, pg_sys::TEXTOID, pg_sys::TEXTOID];
            let side_key = with(side, READ, |relation| {
                if !is_plain_from(relation, &of_side) {
                    return pg_sys::InvalidOid;
                }
                let index = pg_sys::RelationGetReplicaIndex(relation);
                if index != pg_sys::InvalidOid && is_by_number(index) { index } else { pg_sys::InvalidOid }
            });
            (side_key != pg_sys::InvalidOid).then_some(Queue {
                split: agent.split,
                table,
                barrier,
                sequence,
                side,
                side_key,
            })
        }
    }

    /// Writes an entry if the split's state is `capture` and the queues are open. Returns the entry's time, or None if
    /// PL/pgSQL has to decide. `as_of` is the epoch at which this queue was read.
    ///
    /// # Safety
    /// A trigger is being called in a READ COMMITTED transaction. The values are of the queue's types.
    pub unsafe fn insert(&self, event: NativeEvent, keys: &[pg_sys::Datum], as_of: u64) -> Option<i64> {
        // SAFETY: what is opened here is closed here, or by the end of a (sub)transaction that fails. Taking the locks
        // reveals earlier changes: nothing of the entry is used then.
        unsafe {
            pg_sys::LockRelationOid(self.barrier, pg_sys::RowShareLock as pg_sys::LOCKMODE);
            pg_sys::LockRelationOid(self.table, WRITE);
            pg_sys::LockRelationOid(self.side, READ);
            pg_sys::LockRelationOid(self.sequence, WRITE);
            if watch::epoch() != as_of {
                return None;
            }
            let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
            let takes = with(self.side, KEEP, |side| self.captures(side, snapshot))
                && with(self.sequence, KEEP, |sequence| is_open(sequence, snapshot));
            pg_sys::UnregisterSnapshot(snapshot);
            takes.then(|| with(self.table, KEEP, |queue| write(queue, event, keys)))
        }
    }

    /// Whether the split's state is `capture`.
    ///
    /// # Safety
    /// The relation is the table of sides, and the snapshot is registered.
    unsafe fn captures(&self, side: pg_sys::Relation, snapshot: pg_sys::Snapshot) -> bool {
        let mut key = pg_sys::ScanKeyData::default();
        let mut captures = false;
        // SAFETY: the caller keeps the promise above; the index is the primary key, whose first column is the split's
        // number.
        unsafe {
            pg_sys::ScanKeyInit(
                &mut key,
                1,
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                pg_sys::F_INT8EQ.into(),
                pg_sys::Datum::from(self.split),
            );
            let scan = pg_sys::systable_beginscan(side, self.side_key, true, snapshot, 1, &mut key);
            loop {
                let tuple = pg_sys::systable_getnext(scan);
                if tuple.is_null() {
                    break;
                }
                let says = |column: i32, text: &[u8]| {
                    let mut is_null = false;
                    let value = pg_sys::heap_getattr(tuple, column, (*side).rd_att, &mut is_null);
                    !is_null && Form::Varying.bytes(value) == Some(text)
                };
                captures |= says(2, b"source") && says(3, b"capture");
            }
            pg_sys::systable_endscan(scan);
        }
        captures
    }
}

/// Whether a sequence that nobody draws from shows that the queues are open.
///
/// # Safety
/// The relation is a sequence, and the snapshot is registered; every snapshot shows the only row.
unsafe fn is_open(sequence: pg_sys::Relation, snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: the caller keeps the promise above; the first column is the last value.
    unsafe {
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(sequence, pg_sys::InvalidOid, false, snapshot, 0, none);
        let tuple = pg_sys::systable_getnext(scan);
        let is_open = !tuple.is_null() && {
            let mut is_null = false;
            let value = pg_sys::heap_getattr(tuple, 1, (*sequence).rd_att, &mut is_null);
            !is_null && value.value() as i64 <= 1
        };
        pg_sys::systable_endscan(scan);
        is_open
    }
}

/// # Safety
/// The relation is a queue, and the values are those of its key.
unsafe fn write(queue: pg_sys::Relation, event: NativeEvent, keys: &[pg_sys::Datum]) -> i64 {
    // SAFETY: the caller keeps the promise above. The table has only these columns and an index over its own columns,
    // and only these are written here.
    unsafe {
        let at = pg_sys::GetCurrentTimestamp();
        let mut values = vec![
            pg_sys::Datum::from(pg_sys::GetTopFullTransactionId().value),
            pg_sys::Datum::from(at),
            pg_sys::Datum::from(event.letter()),
        ];
        values.extend(keys);
        let mut nulls = vec![false; values.len()];
        let tuple = pg_sys::heap_form_tuple((*queue).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::CatalogTupleInsert(queue, tuple);
        pg_sys::heap_freetuple(tuple);
        at
    }
}

/// # Safety
/// A transaction is open; with KEEP, the relation is locked, and stays so.
unsafe fn with<R>(
    relation: pg_sys::Oid,
    lock: pg_sys::LOCKMODE,
    body: impl FnOnce(pg_sys::Relation) -> R,
) -> R {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let relation = pg_sys::relation_open(relation, lock);
        let result = body(relation);
        pg_sys::relation_close(relation, lock);
        result
    }
}

/// Whether it is a table with exactly these columns, into which rows can be written without further work.
///
/// # Safety
/// The relation is open.
unsafe fn is_plain(relation: pg_sys::Relation, columns: &[pg_sys::Oid]) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let row = &*(*relation).rd_rel;
        let shape = &*(*relation).rd_att;
        let constraints = shape.constr;
        let is_free =
            constraints.is_null() || (*constraints).num_check == 0 && !(*constraints).has_generated_stored;
        !row.relhastriggers
            && !row.relhasrules
            && is_free
            && usize::try_from(shape.natts).is_ok_and(|count| count == columns.len())
            && is_plain_from(relation, columns)
            && columns.len() > BEFORE_KEY
    }
}

/// Whether an index begins with the table's first column: an owner can make another index identify its rows.
///
/// # Safety
/// The index belongs to a table that is locked.
unsafe fn is_by_number(index: pg_sys::Oid) -> bool {
    // SAFETY: the caller keeps the promise above; what is opened here is closed here.
    unsafe {
        let index = pg_sys::index_open(index, READ);
        let row = &*(*index).rd_index;
        let is_by_number = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && row.indisvalid
            && row.indnkeyatts >= 1
            && *row.indkey.values.as_ptr() == 1
            && pg_sys::RelationGetIndexPredicate(index).is_null();
        pg_sys::index_close(index, KEEP);
        is_by_number
    }
}

/// Whether the only index of a table is one over its first column.
///
/// # Safety
/// The table is open.
unsafe fn has_plain_index(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller keeps the promise above; what is opened here is closed here.
    unsafe {
        let list = pg_sys::RelationGetIndexList(relation);
        let indexes = pgrx::PgList::<pg_sys::Oid>::from_pg(list);
        let Some(index) = indexes.get_oid(0).filter(|_| indexes.len() == 1) else { return false };
        let index = pg_sys::index_open(index, READ);
        let row = &*(*index).rd_index;
        let is_plain = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && row.indnatts == 1
            && *row.indkey.values.as_ptr() == 1
            && !row.indisexclusion
            && pg_sys::RelationGetIndexPredicate(index).is_null();
        pg_sys::index_close(index, KEEP);
        is_plain
    }
}
