//! The foreign data wrapper: the functions that the server calls; each calls one of this room.

use super::plan;
use super::scan::Scan;
use crate::error::{Failure, raise};
use crate::majors;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;
use pgrx::prelude::*;
use std::ffi::{CString, c_int};

/// Returns the wrapper's routines, in the server's memory.
pub fn routines() -> *mut pg_sys::FdwRoutine {
    // SAFETY: this is a node of this type, all zero except for its tag.
    let mut made = unsafe { PgBox::<pg_sys::FdwRoutine>::alloc_node(pg_sys::NodeTag::T_FdwRoutine) };
    made.GetForeignRelSize = Some(get_size);
    made.GetForeignPaths = Some(get_paths);
    made.GetForeignPlan = Some(get_plan);
    made.ExplainForeignScan = Some(explain);
    made.BeginForeignScan = Some(begin);
    made.IterateForeignScan = Some(iterate);
    made.ReScanForeignScan = Some(rescan);
    made.EndForeignScan = Some(end);
    made.into_pg()
}

fn raised<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| raise(failure))
}

#[pg_guard]
unsafe extern "C-unwind" fn get_size(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    _table: pg_sys::Oid,
) {
    // SAFETY: the planner calls this.
    unsafe { plan::estimate(root, relation) };
}

#[pg_guard]
unsafe extern "C-unwind" fn get_paths(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    _table: pg_sys::Oid,
) {
    // SAFETY: the planner calls this.
    unsafe {
        let (startup, total) = plan::costs((*relation).rows);
        let path = majors::foreign_scan_path(root, relation, startup, total);
        pg_sys::add_path(relation, path.cast());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn get_plan(
    _root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table: pg_sys::Oid,
    _path: *mut pg_sys::ForeignPath,
    list: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    outer: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    // SAFETY: the planner calls this.
    unsafe { plan::make(relation, table, list, clauses, outer) }
}

#[pg_guard]
unsafe extern "C-unwind" fn begin(node: *mut pg_sys::ForeignScanState, _flags: c_int) {
    // SAFETY: the executor calls this. The scan is dropped with the query's memory, and its sessions end with it.
    unsafe {
        let scan = raised(Scan::begin(node));
        let memory = (*(*node).ss.ps.state).es_query_cxt;
        (*node).fdw_state = PgMemoryContexts::For(memory).leak_and_drop_on_delete(scan).cast();
    }
}

/// # Safety
/// The node is one of this wrapper, whose scan `begin` has made.
unsafe fn scan_of<'a>(node: *mut pg_sys::ForeignScanState) -> Option<&'a mut Scan> {
    // SAFETY: the caller keeps the promise above; nobody else uses the scan meanwhile.
    unsafe { (*node).fdw_state.cast::<Scan>().as_mut() }
}

#[pg_guard]
unsafe extern "C-unwind" fn iterate(node: *mut pg_sys::ForeignScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: the executor calls this.
    unsafe {
        let slot = (*node).ss.ss_ScanTupleSlot;
        pg_sys::ExecClearTuple(slot);
        if let Some(scan) = scan_of(node) {
            raised(scan.next(node));
        }
        slot
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn rescan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the executor calls this.
    if let Some(scan) = unsafe { scan_of(node) } {
        scan.restart();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the executor calls this.
    if let Some(scan) = unsafe { scan_of(node) } {
        scan.end();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn explain(node: *mut pg_sys::ForeignScanState, state: *mut pg_sys::ExplainState) {
    // SAFETY: EXPLAIN calls this, for a scan that has begun.
    unsafe {
        if let Some(scan) = scan_of(node) {
            let text = CString::new(scan.shown()).unwrap_or_default();
            pg_sys::ExplainPropertyText(c"Asked of shards".as_ptr(), text.as_ptr(), state);
        }
    }
}
