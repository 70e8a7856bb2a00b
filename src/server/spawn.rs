//! How background workers are started.

use super::process::WorkerKind;
use super::sql;
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The library's file name, from which the server loads a worker's entry point.
const LIBRARY: &str = "shardmaster";

/// Returns how a worker of this library is started that reads tables.
pub fn builder(name: &str, function: &str) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(name)
        .set_type(name)
        .set_library(LIBRARY)
        .set_function(function)
        .enable_spi_access()
}

/// Returns how a split's worker is started: it is never restarted by the postmaster, which would not read the plan
/// first.
pub fn split_worker(
    split_id: i64,
    database: pg_sys::Oid,
    role: Option<pg_sys::Oid>,
) -> BackgroundWorkerBuilder {
    let name = WorkerKind::Split(split_id).name();
    let role = role.unwrap_or(pg_sys::InvalidOid);
    builder(&name, "shardmaster_split_main")
        .set_argument(Some(pg_sys::Datum::from(split_id)))
        .set_extra(&format!("{} {}", database.to_u32(), role.to_u32()))
}

/// Returns the role as which split workers connect: the extension's owner. Returns None if that role may not log in:
/// then it is the bootstrap superuser.
pub fn worker_role() -> Option<pg_sys::Oid> {
    sql::read_one_again(
        "SELECT r.oid FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_roles r ON r.oid = e.extowner
          WHERE e.extname = 'shardmaster' AND r.rolcanlogin",
        &[],
        |row| row.value(1),
    )
}

/// Warns what is missing when the server refuses another background worker. It is a warning, so it can be used where
/// an error may not be raised.
pub fn warn_no_slot(worker: &str) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        format!("no free background worker slot for {worker}"),
        "shardmaster",
    )
    .set_hint("Increase max_worker_processes and restart the server.")
    .report(PgLogLevel::WARNING);
}
