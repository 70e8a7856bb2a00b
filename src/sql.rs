//! SPI in three calls: `read` (takes no transaction id, works on a standby), `write`
//! and `write_returning`. Errors of the SQL unwind; a wrong column type is a bug.

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::{SpiError, SpiHeapTupleData};

/// One row of a result, read by position from 1.
pub struct Row<'a>(SpiHeapTupleData<'a>);

impl Row<'_> {
    /// A column that may be NULL.
    pub fn get<T: FromDatum + IntoDatum>(&self, column: usize) -> Option<T> {
        bug_if_error(self.0.get::<T>(column))
    }

    /// A column that is NOT NULL in the catalog.
    pub fn value<T: FromDatum + IntoDatum>(&self, column: usize) -> T {
        match self.get::<T>(column) {
            Some(value) => value,
            None => error!("unexpected NULL in column {column} of the catalog"),
        }
    }
}

/// Reads with a snapshot of its own: in READ COMMITTED each call sees what has been
/// committed by then, which the loops that wait rely on.
pub fn read<R>(query: &str, args: &[DatumWithOid<'_>], mut row: impl FnMut(Row<'_>) -> R) -> Vec<R> {
    // SAFETY: pushed and popped in pairs; an error in between aborts the
    // transaction, which pops what is left.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
    let rows = bug_if_error(Spi::connect(|client| {
        let table = client.select(query, None, args)?;
        Ok::<_, SpiError>(table.map(|tuple| row(Row(tuple))).collect())
    }));
    // SAFETY: as above.
    unsafe {
        pg_sys::PopActiveSnapshot();
    }
    rows
}

/// The first row of `read`.
pub fn read_one<R>(query: &str, args: &[DatumWithOid<'_>], row: impl FnMut(Row<'_>) -> R) -> Option<R> {
    read(query, args, row).into_iter().next()
}

/// Runs a command that writes or locks; returns the rows it touched.
pub fn write(query: &str, args: &[DatumWithOid<'_>]) -> usize {
    bug_if_error(Spi::connect_mut(|client| Ok::<_, SpiError>(client.update(query, None, args)?.len())))
}

/// Runs a command that writes or locks and reads what it returns.
pub fn write_returning<R>(
    query: &str,
    args: &[DatumWithOid<'_>],
    mut row: impl FnMut(Row<'_>) -> R,
) -> Vec<R> {
    bug_if_error(Spi::connect_mut(|client| {
        let table = client.update(query, None, args)?;
        Ok::<_, SpiError>(table.map(|tuple| row(Row(tuple))).collect())
    }))
}

fn bug_if_error<T>(result: Result<T, SpiError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => error!("internal query failed: {error}"),
    }
}
