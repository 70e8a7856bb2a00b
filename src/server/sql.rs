//! SPI: functions that read take no transaction id and work on a standby; those that write do not. Each exists with a
//! text, or with a plan that the session keeps (`Prepared`, `read_again`). Errors of the SQL unwind; a wrong column
//! type is a bug.

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient, SpiError, SpiHeapTupleData, SpiTupleTable};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::rc::Rc;
use std::thread::LocalKey;

/// One row of a result, read by position from 1 or by the names of its columns.
pub struct Row<'a>(SpiHeapTupleData<'a>);

impl Row<'_> {
    /// Returns a column that may be NULL.
    pub fn get<T: FromDatum + IntoDatum>(&self, column: usize) -> Option<T> {
        bug_if_error(self.0.get::<T>(column))
    }

    /// Returns a column that may be NULL by its name.
    pub fn named<T: FromDatum + IntoDatum>(&self, column: &str) -> Option<T> {
        bug_if_error(self.0.get_by_name::<T, &str>(column))
    }

    /// Whether a column is true.
    pub fn is(&self, column: &str) -> bool {
        self.named(column).unwrap_or(false)
    }

    /// Returns a column that is NOT NULL in the catalog.
    pub fn value<T: FromDatum + IntoDatum>(&self, column: usize) -> T {
        match self.get::<T>(column) {
            Some(value) => value,
            None => error!("unexpected NULL in column {column} of the catalog"),
        }
    }
}

/// Reads with a snapshot of its own: in READ COMMITTED each call sees what has been committed by then, on which loops
/// that wait rely.
pub fn read<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    with_own_snapshot(|| {
        bug_if_error(Spi::connect(|client| {
            Ok::<_, SpiError>(each_row(client.select(query, None, args)?, row))
        }))
    })
}

/// Returns the first row of `read`.
pub fn read_one<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Option<R> {
    read(query, args, row).into_iter().next()
}

/// Returns the first column of all rows of `read`.
pub fn read_column<T: FromDatum + IntoDatum>(query: &str, args: &[DatumWithOid<'_>]) -> Vec<T> {
    read(query, args, |row| row.value(1))
}

/// Returns the first column of the first row of `read`, which may be NULL.
pub fn read_optional<T: FromDatum + IntoDatum>(query: &str, args: &[DatumWithOid<'_>]) -> Option<T> {
    read_one(query, args, |row| row.get(1)).flatten()
}

/// Whether `read` finds a row.
pub fn exists(query: &str, args: &[DatumWithOid<'_>]) -> bool {
    read_one(query, args, |_| ()).is_some()
}

/// Reads what has been committed by now, also in REPEATABLE READ and above.
pub fn read_latest<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    // SAFETY: the transaction's own snapshot comes first, as the server requires. Below a plan that is partly run by
    // parallel workers there is no other one; except in REPEATABLE READ and above it is the latest.
    let latest = unsafe {
        let own = pg_sys::GetTransactionSnapshot();
        if pg_sys::IsInParallelMode() && !keeps_its_snapshot() { own } else { pg_sys::GetLatestSnapshot() }
    };
    with_snapshot(latest, || Spi::connect(|_| read_as_it_is(query, args, row)))
}

/// Returns the first row of `read_latest`.
pub fn read_one_latest<R>(
    query: &str,
    args: &[DatumWithOid<'_>],
    row: impl FnMut(Row<'_>) -> R,
) -> Option<R> {
    read_latest(query, args, row).into_iter().next()
}

/// Reads with the active snapshot. pgrx's own calls take the transaction's once that has written.
fn read_as_it_is<R>(query: &str, args: &[DatumWithOid<'_>], mut row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    let text = CString::new(query).unwrap_or_default();
    let mut types: Vec<pg_sys::Oid> = args.iter().map(DatumWithOid::oid).collect();
    let datum =
        |arg: &DatumWithOid<'_>| arg.datum().map_or(pg_sys::Datum::null(), |datum| datum.sans_lifetime());
    let mut values: Vec<pg_sys::Datum> = args.iter().map(datum).collect();
    let is_null = |arg: &DatumWithOid<'_>| if arg.datum().is_some() { b' ' } else { b'n' };
    let nulls: Vec<c_char> = args.iter().map(|arg| is_null(arg) as c_char).collect();
    // SAFETY: this is within a connection to SPI; there are as many types, values and NULL flags as given, which live
    // for the call. The result lives as long as the connection.
    unsafe {
        let count = args.len() as i32;
        let status = pg_sys::SPI_execute_with_args(
            text.as_ptr(),
            count,
            types.as_mut_ptr(),
            values.as_mut_ptr(),
            nulls.as_ptr(),
            true,
            0,
        );
        let Some(table) = pg_sys::SPI_tuptable.as_ref().filter(|_| status == pg_sys::SPI_OK_SELECT as i32)
        else {
            error!("a query of the catalog ended with {status}");
        };
        let tuples = (0..pg_sys::SPI_processed as usize).map(|at| *table.vals.add(at));
        let read =
            |tuple| bug_if_error(SpiHeapTupleData::new(table.tupdesc, tuple)).map(|found| row(Row(found)));
        tuples.filter_map(read).collect()
    }
}

fn with_snapshot<R>(snapshot: pg_sys::Snapshot, body: impl FnOnce() -> R) -> R {
    // SAFETY: snapshots are pushed and popped in pairs; an error in between aborts the transaction, which pops what is
    // left.
    unsafe { pg_sys::PushActiveSnapshot(snapshot) };
    let result = body();
    // SAFETY: as above.
    unsafe { pg_sys::PopActiveSnapshot() };
    result
}

fn with_own_snapshot<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: this is called in a transaction.
    with_snapshot(unsafe { pg_sys::GetTransactionSnapshot() }, body)
}

fn each_row<R>(table: SpiTupleTable<'_>, mut row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    table.map(|tuple| row(Row(tuple))).collect()
}

/// Whether all statements of the transaction see the same snapshot: REPEATABLE READ and above.
pub fn keeps_its_snapshot() -> bool {
    // SAFETY: this is a plain variable of the transaction.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// A query of a hot path: it is planned on first use, and the plan is kept for the life of the session.
pub struct Prepared {
    query: &'static str,
    types: &'static [pg_sys::Oid],
    plan: OnceCell<OwnedPreparedStatement>,
}

impl Prepared {
    pub const fn new(query: &'static str, types: &'static [pg_sys::Oid]) -> Prepared {
        Prepared { query, types, plan: OnceCell::new() }
    }

    fn plan(&self, client: &SpiClient<'_>, writes: bool) -> Result<&OwnedPreparedStatement, SpiError> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let types: Vec<PgOid> = self.types.iter().copied().map(PgOid::from).collect();
        let prepared = if writes {
            client.prepare_mut(self.query, &types)?
        } else {
            client.prepare(self.query, &types)?
        };
        Ok(self.plan.get_or_init(|| prepared.keep()))
    }
}

/// Works like `read` with a prepared query; the server plans it again when a table changes.
pub fn read_prepared<R>(
    prepared: &'static LocalKey<Prepared>,
    args: &[DatumWithOid<'_>],
    row: impl FnMut(Row<'_>) -> R,
) -> Vec<R> {
    with_own_snapshot(|| {
        bug_if_error(Spi::connect(|client| {
            prepared.with(|prepared| {
                let plan = prepared.plan(client, false)?;
                Ok::<_, SpiError>(each_row(client.select(plan, None, args)?, row))
            })
        }))
    })
}

/// Returns the first row of `read_prepared`.
pub fn read_one_prepared<R>(
    prepared: &'static LocalKey<Prepared>,
    args: &[DatumWithOid<'_>],
    row: impl FnMut(Row<'_>) -> R,
) -> Option<R> {
    read_prepared(prepared, args, row).into_iter().next()
}

/// The number of texts whose plans a session keeps. Some contain settings: after a setting was changed, the old ones
/// are dropped, with all others.
const MOST_KEPT: usize = 64;

thread_local! {
    static KEPT: RefCell<HashMap<String, Rc<OwnedPreparedStatement>>> = RefCell::default();
}

/// While it lives no plan is made for the arguments of a single call, which the server would otherwise do for the
/// first five.
struct ForAllArguments(std::ffi::c_int);

impl ForAllArguments {
    fn begin() -> ForAllArguments {
        // SAFETY: this is a plain variable of the process, read when a plan is requested.
        unsafe {
            let before = pg_sys::plan_cache_mode;
            pg_sys::plan_cache_mode =
                pg_sys::PlanCacheMode::PLAN_CACHE_MODE_FORCE_GENERIC_PLAN as std::ffi::c_int;
            ForAllArguments(before)
        }
    }
}

impl Drop for ForAllArguments {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::plan_cache_mode = self.0 };
    }
}

/// Works like `read` for what a loop reads at each turn, of few rows: planning it takes many times longer than running
/// it. The types of the arguments are always the same.
pub fn read_again<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    with_own_snapshot(|| {
        let _generic = ForAllArguments::begin();
        bug_if_error(Spi::connect(|client| {
            let plan = kept(client, query, args)?;
            Ok::<_, SpiError>(each_row(client.select(&*plan, None, args)?, row))
        }))
    })
}

/// Returns the first row of `read_again`.
pub fn read_one_again<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Option<R> {
    read_again(query, args, row).into_iter().next()
}

fn kept(
    client: &SpiClient<'_>,
    query: &str,
    args: &[DatumWithOid<'_>],
) -> Result<Rc<OwnedPreparedStatement>, SpiError> {
    if let Some(plan) = KEPT.with_borrow(|kept| kept.get(query).cloned()) {
        return Ok(plan);
    }
    let types: Vec<PgOid> = args.iter().map(|arg| PgOid::from(arg.oid())).collect();
    let plan = Rc::new(client.prepare(query, &types)?.keep());
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(query.to_owned(), Rc::clone(&plan));
    });
    Ok(plan)
}

/// Works like `write_returning` with a prepared command.
pub fn write_prepared<R>(
    prepared: &'static LocalKey<Prepared>,
    args: &[DatumWithOid<'_>],
    row: impl FnMut(Row<'_>) -> R,
) -> Vec<R> {
    bug_if_error(Spi::connect_mut(|client| {
        prepared.with(|prepared| {
            let plan = prepared.plan(client, true)?;
            Ok::<_, SpiError>(each_row(client.update(plan, None, args)?, row))
        })
    }))
}

/// Returns the first row of `write_prepared`.
pub fn write_one_prepared<R>(
    prepared: &'static LocalKey<Prepared>,
    args: &[DatumWithOid<'_>],
    row: impl FnMut(Row<'_>) -> R,
) -> Option<R> {
    write_prepared(prepared, args, row).into_iter().next()
}

/// Runs a command that writes or locks; returns the number of rows it touched.
pub fn write(query: &str, args: &[DatumWithOid<'_>]) -> usize {
    bug_if_error(Spi::connect_mut(|client| Ok::<_, SpiError>(client.update(query, None, args)?.len())))
}

/// Runs a command that writes or locks and reads what it returns.
pub fn write_returning<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    bug_if_error(Spi::connect_mut(|client| {
        Ok::<_, SpiError>(each_row(client.update(query, None, args)?, row))
    }))
}

/// Returns the first row of `write_returning`.
pub fn write_one<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Option<R> {
    write_returning(query, args, row).into_iter().next()
}

fn bug_if_error<T>(result: Result<T, SpiError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => error!("internal query failed: {error}"),
    }
}
