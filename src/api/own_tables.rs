//! The trigger that each table of the catalog has.

use crate::catalog::own_tables;
use crate::error::{Failure, SqlState};
use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

/// Fires before any other trigger, and leaves rows unchanged unless the extension's owner changes them, and while a
/// change would run code of others.
#[pg_trigger(
    sql = "CREATE FUNCTION shardmaster.no_code_of_others() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn no_code_of_others<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, impl WhoAllocated>>, std::convert::Infallible> {
    if let Ok(table) = trigger.relation() {
        // SAFETY: this is the table of the trigger, which is open and locked while the trigger runs.
        let (may_change, found) = unsafe {
            let relation = table.as_ptr();
            (own_tables::may_change(relation), own_tables::code_of_others(relation))
        };
        let refused = match (may_change, found) {
            (true, None) => Ok(()),
            (false, _) => Err(denied(table.name())),
            (true, Some(what)) => Err(refused(table.name(), &what)),
        };
        refused.map_err(ErrorReport::from).unwrap_or_report();
    }
    Ok(None::<PgHeapTuple<'a, AllocatedByPostgres>>)
}

fn denied(table: &str) -> Failure {
    Failure::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        format!("permission denied to change rows of table shardmaster.{table}"),
    )
    .detail("Neither pg_write_all_data nor a GRANT gives the right to change the extension's catalog, because splits act on it with the rights of others.")
    .hint("Call the functions of the extension.")
}

fn refused(table: &str, what: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("table shardmaster.{table} has code attached that is not the extension's: {what}"))
        .detail("A change of its rows would run that code with the rights of the extension's owner.")
        .hint("Drop it. SELECT shardmaster.code_of_others() lists all. Read the catalog through the extension's views and functions.")
}

extension_sql_file!(
    "../../sql/own_tables.sql",
    name = "own_tables",
    requires = ["catalog", "access", no_code_of_others]
);
