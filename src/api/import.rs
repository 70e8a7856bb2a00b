//! Tables of all shards as foreign tables of the master.

use super::arguments::{invalid, longest_wait, names_of};
use super::on_primary;
use crate::catalog::name;
use crate::error::required;
use crate::import::options::Options;
use crate::import::tables::Import;
use crate::import::wrapper;
use crate::query::run::require_fit;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::{Datum, Interval};
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: the foreign tables are the caller's, and shards are asked as its login.
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_import(
    keyspace: default!(Option<String>, "'default'"),
    into_schema: default!(Option<String>, "'shards'"),
    shard: default!(Option<String>, "NULL"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<TableIterator<'static, (name!(foreign_table, String), name!(change, String))>, ErrorReport> {
    on_primary("shard_import")?;
    require_fit("shard_import")?;
    let (keyspace, schema) = (required(keyspace, "keyspace")?, required(into_schema, "into_schema")?);
    if let Some(problem) = name::problem(&schema) {
        return Err(invalid("into_schema", problem).into());
    }
    let import = Import { keyspace: &keyspace, schema: &schema, shard, timeout: longest_wait(timeout)? };
    let made = import.run()?;
    Ok(TableIterator::new(made.into_iter().map(|one| (one.table, one.change.to_owned()))))
}

/// What a wrapper's handler returns.
struct Routines(*mut pg_sys::FdwRoutine);

// SAFETY: this is a pointer to the routines, as the pseudo-type requires.
unsafe impl BoxRet for Routines {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: this runs in a function of SQL, which returns the pointer.
        unsafe { fcinfo.return_raw_datum(pg_sys::Datum::from(self.0)) }
    }
}

pgrx::pgrx_sql_entity_graph::impl_sql_translatable!(Routines, "fdw_handler");

#[pg_extern(
    sql = "CREATE FUNCTION shardmaster.fdw_handler() RETURNS fdw_handler LANGUAGE c STRICT AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn fdw_handler() -> Routines {
    Routines(wrapper::routines())
}

/// Foreign tables need all options, other objects need none.
#[pg_extern(
    sql = "CREATE FUNCTION shardmaster.fdw_validator(options text[], of_catalog oid) RETURNS void LANGUAGE c STRICT AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn fdw_validator(options: Vec<Option<String>>, of_catalog: pg_sys::Oid) -> Result<(), ErrorReport> {
    let given: Vec<(String, String)> = names_of(options, "options")?
        .into_iter()
        .map(|option| match option.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (option, String::new()),
        })
        .collect();
    if of_catalog == pg_sys::ForeignTableRelationId || !given.is_empty() {
        Options::parse(given)?;
    }
    Ok(())
}

extension_sql_file!(
    "../../sql/import.sql",
    name = "import",
    requires = [shard_import, fdw_handler, fdw_validator]
);
