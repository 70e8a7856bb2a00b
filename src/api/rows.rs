//! Rows of a named type of the schema `shardmaster`: `\df` shows the name, while `RETURNS TABLE` would list every
//! column, and an update adds a column to the type without dropping the function.

use crate::error::{Failure, SqlState};
use pgrx::callconv::{CallCx, RetAbi};
use pgrx::pg_sys::panic::ErrorReportable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::prelude::*;
use pgrx::{PgTupleDesc, pg_sys};

/// The columns of a type that `sql/rows.sql` creates.
pub trait RowType {
    type Columns: RetAbi + 'static;
    /// What the function returns, in SQL.
    const RETURNS: &'static str;
    /// Returns the columns' names and types.
    fn columns() -> Vec<(&'static str, pg_sys::Oid)>;
}

/// One row of a type.
pub type Columns<R> = <R as RowType>::Columns;

/// The result of a function that is declared `RETURNS SETOF` the type of `R`.
pub struct RowSet<R: RowType>(TableIterator<'static, R::Columns>);

type SetTable<R> = TableIterator<'static, <R as RowType>::Columns>;

impl<R: RowType> RowSet<R> {
    pub fn new(rows: impl IntoIterator<Item = R::Columns> + 'static) -> Self {
        RowSet(TableIterator::new(rows))
    }

    pub fn once(row: R::Columns) -> Self {
        RowSet(TableIterator::once(row))
    }
}

// SAFETY: it names a type that the extension's scripts create before its functions.
unsafe impl<R: RowType> SqlTranslatable for RowSet<R> {
    const TYPE_IDENT: &'static str = R::RETURNS;
    // A type of this extension would have to be one that pgrx itself creates.
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Err(ArgumentError::SetOf);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal(R::RETURNS)));
}

// SAFETY: everything is left to a TableIterator, which asks the server for the result's columns: those of a type, or
// those of RETURNS TABLE in an older version's catalog.
unsafe impl<R: RowType> RetAbi for RowSet<R> {
    type Item = R::Columns;
    type Ret = <SetTable<R> as RetAbi>::Ret;

    unsafe fn check_fcinfo_and_prepare(fcinfo: pg_sys::FunctionCallInfo) -> CallCx {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            if (*(*fcinfo).flinfo).fn_extra.is_null() {
                check::<R>(fcinfo).unwrap_or_report();
            }
            SetTable::<R>::check_fcinfo_and_prepare(fcinfo)
        }
    }

    fn to_ret(self) -> Self::Ret {
        self.0.to_ret()
    }

    unsafe fn box_ret_in_fcinfo(fcinfo: pg_sys::FunctionCallInfo, ret: Self::Ret) -> pg_sys::Datum {
        // SAFETY: the caller keeps the promise above.
        unsafe { SetTable::<R>::box_ret_in_fcinfo(fcinfo, ret) }
    }

    unsafe fn fill_fcinfo_fcx(&self, fcinfo: pg_sys::FunctionCallInfo) {
        // SAFETY: the caller keeps the promise above.
        unsafe { self.0.fill_fcinfo_fcx(fcinfo) }
    }

    unsafe fn move_into_fcinfo_fcx(self, fcinfo: pg_sys::FunctionCallInfo) {
        // SAFETY: the caller keeps the promise above.
        unsafe { self.0.move_into_fcinfo_fcx(fcinfo) }
    }

    unsafe fn ret_from_fcinfo_fcx(fcinfo: pg_sys::FunctionCallInfo) -> Self::Ret {
        // SAFETY: the caller keeps the promise above.
        unsafe { SetTable::<R>::ret_from_fcinfo_fcx(fcinfo) }
    }

    unsafe fn finish_call_fcinfo(fcinfo: pg_sys::FunctionCallInfo) {
        // SAFETY: the caller keeps the promise above.
        unsafe { SetTable::<R>::finish_call_fcinfo(fcinfo) }
    }
}

/// Checks that the catalog's columns are the library's, because rows are built by position. The columns may be of
/// another version between an installation, the restart and the update: the catalog of an earlier release may have
/// only the first of them.
///
/// # Safety
/// `fcinfo` belongs to a running call.
unsafe fn check<R: RowType>(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), pg_sys::panic::ErrorReport> {
    let mut description = std::ptr::null_mut();
    // SAFETY: the caller keeps the promise above; the description is a copy.
    let found = unsafe {
        pg_sys::get_call_result_type(fcinfo, std::ptr::null_mut(), &mut description);
        if description.is_null() { None } else { Some(PgTupleDesc::from_pg_is_copy(description)) }
    };
    let mut known = R::columns().into_iter();
    let mut is_known =
        |column: &pg_sys::FormData_pg_attribute| known.next() == Some((column.name(), column.atttypid));
    if found.is_some_and(|columns| columns.iter().all(&mut is_known)) {
        return Ok(());
    }
    let message = format!("the library and the extension have different columns for {}", R::RETURNS);
    Err(Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Run ALTER EXTENSION shardmaster UPDATE. If that does not help, restart the server.")
        .into())
}

/// `row!(Name, "type", column: type, ..)` defines a type of `sql/rows.sql`.
macro_rules! row {
    ($name:ident, $sql:literal, $($column:ident: $type:ty),+ $(,)?) => {
        pub enum $name {}

        impl $crate::api::rows::RowType for $name {
            type Columns = ($($type,)+);
            const RETURNS: &'static str = concat!("SETOF shardmaster.", $sql);

            fn columns() -> Vec<(&'static str, pgrx::pg_sys::Oid)> {
                vec![$((stringify!($column), <$type as pgrx::IntoDatum>::type_oid())),+]
            }
        }
    };
}
pub(crate) use row;
