//! Rows of a named type of the schema `shardmaster`: `\df` shows the name where `RETURNS TABLE` would
//! spread out every column, and an update adds a column to the type without dropping the function.

use crate::error::{Failure, SqlState};
use pgrx::callconv::{CallCx, RetAbi};
use pgrx::pg_sys::panic::ErrorReportable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::prelude::*;
use pgrx::{PgTupleDesc, pg_sys};

/// Columns of a type that `sql/rows.sql` creates.
pub trait RowType {
    type Columns: RetAbi + 'static;
    /// What the function returns, as SQL.
    const RETURNS: &'static str;
    /// The columns' names and types.
    fn columns() -> Vec<(&'static str, pg_sys::Oid)>;
}

/// What a function returns that is declared `RETURNS SETOF` the type of `R`.
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

// SAFETY: names a type that the extension's scripts create before its functions.
unsafe impl<R: RowType> SqlTranslatable for RowSet<R> {
    const TYPE_IDENT: &'static str = R::RETURNS;
    // Of this extension it would have to be one that pgrx itself creates.
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Err(ArgumentError::SetOf);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal(R::RETURNS)));
}

// SAFETY: all is what a TableIterator does, which asks the server for the result's columns, whether they
// are those of a type or of RETURNS TABLE, as an older version's catalog has them.
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

/// Rows are put together by position, so the catalog's columns have to be the library's. They may be of another
/// version between an installation, the restart and the update: the first ones alone are a release that had fewer.
///
/// # Safety
/// `fcinfo` is that of a call under way.
unsafe fn check<R: RowType>(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), pg_sys::panic::ErrorReport> {
    let mut description = std::ptr::null_mut();
    // SAFETY: as the caller says; the description is a copy.
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

/// `row!(Name, "type", column: type, ..)`: a type of `sql/rows.sql`.
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
