//! The trigger that each table of the catalog has.

use crate::catalog::own_tables;
use crate::error::{Failure, SqlState};
use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

/// Fires before any other, and keeps rows as they are while there is code of others that a change would run.
#[pg_trigger(
    sql = "CREATE FUNCTION shardmaster.no_code_of_others() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn no_code_of_others<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, impl WhoAllocated>>, std::convert::Infallible> {
    if let Ok(table) = trigger.relation() {
        // SAFETY: the table whose trigger this is: open and locked while it runs.
        let found = unsafe { own_tables::code_of_others(table.as_ptr()) };
        found
            .map_or(Ok(()), |what| Err(refused(table.name(), &what)))
            .map_err(ErrorReport::from)
            .unwrap_or_report();
    }
    Ok(None::<PgHeapTuple<'a, AllocatedByPostgres>>)
}

fn refused(table: &str, what: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("table shardmaster.{table} has code of others: {what}"))
        .detail("A change of its rows would run it with the rights of the extension's owner.")
        .hint("Drop it: SELECT shardmaster.code_of_others() lists all. What others need of the catalog its views and functions give.")
}

extension_sql_file!(
    "../../sql/own_tables.sql",
    name = "own_tables",
    requires = ["catalog", "access", no_code_of_others]
);
