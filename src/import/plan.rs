//! What a scan of a foreign table asks the shards for: it is made with the query's plan, and kept in it.

use super::condition::{ConditionWords, ImportCondition, KeyCondition, QueryColumns};
use crate::remote::quote::ident;
use pgrx::{PgList, pg_sys};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};

#[derive(Serialize, Deserialize)]
pub struct ImportPlan {
    /// The numbers of the columns that the query needs.
    pub columns: Vec<i16>,
    /// The SQL after WHERE, in pieces between which there is a value each; empty for all rows.
    pub texts: Vec<String>,
    /// The conditions by which some shards alone may have the rows.
    pub keys: Vec<KeyCondition>,
}

/// The number of rows of a table of which nothing is known.
const ROWS: f64 = 1000.0;
/// The cost of opening sessions on all shards, and of getting a row from there, in the planner's unit.
const STARTUP: f64 = 1000.0;
const ROW: f64 = 0.1;

/// Sets the number of rows that the planner assumes.
///
/// # Safety
/// The planner calls this, with its own arguments.
pub unsafe fn estimate(root: *mut pg_sys::PlannerInfo, relation: *mut pg_sys::RelOptInfo) {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let tuples = Some((*relation).tuples).filter(|tuples| *tuples > 0.0).unwrap_or(ROWS);
        let inner = pg_sys::JoinType::JOIN_INNER;
        let conditions = (*relation).baserestrictinfo;
        let share = pg_sys::clauselist_selectivity(root, conditions, 0, inner, std::ptr::null_mut());
        (*relation).tuples = tuples;
        (*relation).rows = (tuples * share).max(1.0);
    }
}

/// Returns the costs for the estimated number of rows: before the first row, and in total.
pub fn costs(rows: f64) -> (f64, f64) {
    (STARTUP, STARTUP + rows * ROW)
}

/// Makes the scan of a table; all of its conditions are checked here as well.
///
/// # Safety
/// The planner calls this, with its own arguments.
pub unsafe fn make(
    relation: *mut pg_sys::RelOptInfo,
    table: pg_sys::Oid,
    list: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    outer: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    // SAFETY: the caller keeps the promise above; conditions of a scan are in nodes of the planner.
    unsafe {
        let name = |number: i16| column_name(table, number).map(|name| format!("r.{}", ident(&name)));
        let from = QueryColumns { relation: i32::try_from((*relation).relid).unwrap_or(0), name: &name };
        let mut conditions = Vec::new();
        for info in PgList::<pg_sys::RestrictInfo>::from_pg(clauses).iter_ptr() {
            if !(*info).pseudoconstant {
                conditions.extend(from.condition((*info).clause.cast()));
            }
        }
        let columns = needed(relation, clauses);
        let (plan, values) = ImportPlan::of(columns, conditions);
        let own = pg_sys::extract_actual_clauses(clauses, false);
        let nothing = std::ptr::null_mut();
        pg_sys::make_foreignscan(
            list,
            own,
            (*relation).relid,
            values.into_pg(),
            plan.into_list(),
            nothing,
            nothing,
            outer,
        )
    }
}

/// Returns None if the column was dropped.
unsafe fn column_name(table: pg_sys::Oid, number: i16) -> Option<String> {
    // SAFETY: this reads the catalog; the name ends with NUL.
    unsafe {
        let name = pg_sys::get_attname(table, number, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// Returns the numbers of the columns that a query needs; 0 stands for a whole row.
unsafe fn needed(relation: *mut pg_sys::RelOptInfo, clauses: *mut pg_sys::List) -> Vec<i16> {
    // SAFETY: the promise of `make` holds.
    unsafe {
        let mut found: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        let id = (*relation).relid;
        pg_sys::pull_varattnos((*(*relation).reltarget).exprs.cast(), id, &mut found);
        for info in PgList::<pg_sys::RestrictInfo>::from_pg(clauses).iter_ptr() {
            pg_sys::pull_varattnos((*info).clause.cast(), id, &mut found);
        }
        let mut numbers = Vec::new();
        let mut at = pg_sys::bms_next_member(found, -1);
        while at >= 0 {
            numbers.push(at + pg_sys::FirstLowInvalidHeapAttributeNumber);
            at = pg_sys::bms_next_member(found, at);
        }
        numbers
            .into_iter()
            .filter_map(|number| i16::try_from(number).ok())
            .filter(|number| *number >= 0)
            .collect()
    }
}

impl ImportPlan {
    fn of(columns: Vec<i16>, conditions: Vec<ImportCondition>) -> (ImportPlan, PgList<pg_sys::Node>) {
        let (mut keys, mut all, mut count) = (Vec::new(), Vec::new(), 0);
        for condition in conditions {
            keys.extend(condition.key.map(|key| KeyCondition { value: count, ..key }));
            count += condition.words.values.len();
            all.push(condition.words);
        }
        let words = ConditionWords::joined(all, " AND ");
        let mut values = PgList::new();
        words.values.iter().for_each(|value| values.push(*value));
        (ImportPlan { columns, texts: words.texts, keys }, values)
    }

    /// Returns the plan in a form that the server can copy.
    fn into_list(self) -> *mut pg_sys::List {
        let text = CString::new(serde_json::to_string(&self).unwrap_or_default()).unwrap_or_default();
        // SAFETY: the text is copied into the planner's memory.
        unsafe {
            let mut list = PgList::<std::ffi::c_void>::new();
            list.push(pg_sys::makeString(pg_sys::pstrdup(text.as_ptr())).cast());
            list.into_pg()
        }
    }

    /// # Safety
    /// The list is one of a plan that `into_list` has made.
    pub unsafe fn from_list(list: *mut pg_sys::List) -> Option<ImportPlan> {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            let node = PgList::<pg_sys::Node>::from_pg(list).get_ptr(0)?;
            let text = CStr::from_ptr(crate::majors::string_value(node));
            serde_json::from_slice(text.to_bytes()).ok()
        }
    }

    /// Returns the statement for the shards, with these values between the pieces.
    pub fn statement(&self, table: &str, columns: &[String], values: &[String]) -> String {
        let list: Vec<String> = columns.iter().map(|name| format!("r.{}", ident(name))).collect();
        let list = if list.is_empty() { "NULL AS nothing".to_owned() } else { list.join(", ") };
        let mut statement = format!("SELECT {list} FROM {table} AS r");
        if self.texts.iter().any(|text| !text.is_empty()) {
            statement.push_str(" WHERE ");
        }
        for (number, text) in self.texts.iter().enumerate() {
            if let Some(value) = number.checked_sub(1).and_then(|before| values.get(before)) {
                statement.push_str(value);
            }
            statement.push_str(text);
        }
        statement
    }
}
