//! Queries of all shards, and the logins with which they run.

use super::arguments::{invalid, longest_wait, names_of};
use super::rows::RowSet;
use super::{on_primary, row};
use crate::catalog::caller::Caller;
use crate::catalog::login as logins;
use crate::error::{Failure, SqlState, raise, required};
use crate::query::login;
use crate::query::record::{AS_SENT, ERROR, Json, RecordShape, report};
use crate::query::run::{Query, QueryEvent, RunningQuery, Statement, require_fit};
use crate::server::settings;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::{Datum, Interval};
use pgrx::fcinfo::pg_getarg;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::ffi::CString;
use std::time::Duration;

/// No level of privileges grants this call: only a superuser may make it. It runs with the rights of the extension's
/// owner.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_login_set(
    role: Option<String>,
    username: Option<String>,
    credential_alias: default!(Option<String>, "NULL"),
    shard: default!(Option<String>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_login_set")?;
    let (role, username) = (required(role, "role")?, required(username, "username")?);
    Ok(Caller::as_owner(|caller| {
        require_superuser(caller)?;
        login::set(&role, &username, credential_alias.as_deref(), shard.as_deref(), caller)
    })?)
}

#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_login_drop(
    role: Option<String>,
    shard: default!(Option<String>, "NULL"),
) -> Result<(), ErrorReport> {
    on_primary("shard_login_drop")?;
    let role = required(role, "role")?;
    Ok(Caller::as_owner(|caller| {
        require_superuser(caller)?;
        login::drop(&role, shard.as_deref())
    })?)
}

/// A shard may admit some roles without a password, for example on its own sockets: a caller who chooses the role
/// could become anyone there.
fn require_superuser(caller: &Caller) -> Result<(), Failure> {
    if caller.is_superuser() {
        return Ok(());
    }
    let text = "permission denied to choose the role for a connection to the shards";
    Err(Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, text).hint("A superuser can do it."))
}

#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_logins() -> RowSet<row::Login> {
    RowSet::new(
        logins::list()
            .into_iter()
            .map(|one| (one.role, one.shard, one.username, one.credential_alias, one.set_by, one.updated_at)),
    )
}

/// The arguments of a query, with its statement.
struct QueryTerms {
    statement: String,
    keyspace: String,
    shards: Option<Vec<String>>,
    timeout: Duration,
    reports: bool,
}

impl QueryTerms {
    fn of(
        statement: Option<String>,
        keyspace: Option<String>,
        shards: Option<Vec<Option<String>>>,
        timeout: Option<Interval>,
        on_error: Option<String>,
    ) -> Result<QueryTerms, Failure> {
        let reports = match required(on_error, "on_error")?.as_str() {
            "raise" => false,
            "report" => true,
            other => {
                return Err(invalid("on_error", format!("\"{other}\" is not one of \"raise\", \"report\"")));
            }
        };
        Ok(QueryTerms {
            statement: required(statement, "sql")?,
            keyspace: required(keyspace, "keyspace")?,
            shards: shards.map(|names| names_of(names, "shards")).transpose()?,
            timeout: longest_wait(timeout)?,
            reports,
        })
    }

    fn begin(&self, select: &str) -> Result<RunningQuery, Failure> {
        Query {
            statement: Statement::Given(&self.statement),
            select,
            then: "",
            keyspace: &self.keyspace,
            first_schema: None,
            shards: self.shards.as_deref(),
            timeout: self.timeout,
            reports: self.reports,
            whole: false,
        }
        .begin()
    }
}

/// SECURITY INVOKER: shards are asked as the caller's login. The rows come in the order in which the shards send them.
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_query_json(
    sql: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    shards: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'1 min'"),
    on_error: default!(Option<String>, "'raise'"),
) -> Result<SetOfIterator<'static, Json>, ErrorReport> {
    require_fit("shard_query_json")?;
    let running = QueryTerms::of(sql, keyspace, shards, timeout, on_error)?
        .begin("pg_catalog.row_to_json(answer.*)")?;
    Ok(SetOfIterator::new(JsonRows(Some(running))))
}

/// `None` if all shards have answered and no connection is open any more.
struct JsonRows(Option<RunningQuery>);

impl Iterator for JsonRows {
    type Item = Json;

    fn next(&mut self) -> Option<Json> {
        let running = self.0.as_mut()?;
        match running.next() {
            Some(QueryEvent::Row(_, row)) => Some(Json::Row(row)),
            Some(QueryEvent::Failed(shard, failure)) if running.reports() => {
                let report = report(&shard, &failure).into_string().unwrap_or_default();
                CString::new(format!("{{\"{ERROR}\": {report}}}")).ok().map(Json::Text)
            }
            Some(QueryEvent::Failed(_, failure)) => {
                self.0 = None;
                raise(failure)
            }
            None => {
                self.0 = None;
                None
            }
        }
    }
}

// SAFETY: the datum is a result of the input function of jsonb.
unsafe impl BoxRet for Json {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: this runs in a function of SQL, which returns the value.
        unsafe {
            match self.datum() {
                Some(datum) => fcinfo.return_raw_datum(datum),
                None => fcinfo.return_null(),
            }
        }
    }
}

pgrx::pgrx_sql_entity_graph::impl_sql_translatable!(Json, "jsonb");

/// The caller declares the columns of its rows, so all rows are collected first: on disk, if they are larger than
/// work_mem.
#[pg_extern(
    volatile,
    parallel_unsafe,
    sql = "CREATE FUNCTION shard_query(sql text, keyspace text DEFAULT 'default', shards text[] DEFAULT NULL,
                              timeout interval DEFAULT '1 min', on_error text DEFAULT 'raise')
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';"
)]
fn shard_query(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    require_fit("shard_query")?;
    // SAFETY: the server calls this, with the declared arguments.
    unsafe {
        let terms = QueryTerms::of(
            pg_getarg(fcinfo, 0),
            pg_getarg(fcinfo, 1),
            pg_getarg(fcinfo, 2),
            pg_getarg(fcinfo, 3),
            pg_getarg(fcinfo, 4),
        )?;
        let store = Store::of(fcinfo)?;
        let mut shape = RecordShape::of(store.description, terms.reports)?;
        let mut running = terms.begin("*")?;
        settings::with(&AS_SENT, || collect(&mut running, &mut shape, store.rows))?;
    }
    Ok(())
}

/// # Safety
/// The store is where a function puts its rows, and its rows have that shape.
unsafe fn collect(
    running: &mut RunningQuery,
    shape: &mut RecordShape,
    rows: *mut pg_sys::Tuplestorestate,
) -> Result<(), Failure> {
    let mut for_a_row = PgMemoryContexts::new("row of a shard");
    while let Some(event) = running.next() {
        // SAFETY: the caller keeps the promise above; everything made from a row is in a memory context of its own.
        unsafe {
            let tuple = for_a_row.switch_to(|_| match &event {
                QueryEvent::Row(number, row) => shape.row(*number, running.shard(*number), row),
                QueryEvent::Failed(shard, failure) if running.reports() => Ok(shape.failed(shard, failure)),
                QueryEvent::Failed(_, failure) => Err(failure.clone()),
            })?;
            pg_sys::tuplestore_puttuple(rows, tuple);
            for_a_row.reset();
        }
    }
    Ok(())
}

/// Where a function puts its rows that returns all of them at once.
struct Store {
    rows: *mut pg_sys::Tuplestorestate,
    description: pg_sys::TupleDesc,
}

impl Store {
    /// # Safety
    /// The argument is the one with which the server has called a function.
    unsafe fn of(fcinfo: pg_sys::FunctionCallInfo) -> Result<Store, Failure> {
        let unfit = || {
            let text = "shard_query() called in context that cannot accept a set";
            Failure::new(SqlState::UNSUPPORTED, text)
                .hint("SELECT * FROM shard_query('..') AS t (id bigint, name text); shard_query_json() needs no declaration.")
        };
        // SAFETY: the caller keeps the promise above; the node's type is checked before it is used.
        unsafe {
            let info = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            if info.is_null() || (*info).type_ != pg_sys::NodeTag::T_ReturnSetInfo {
                return Err(unfit());
            }
            let modes = (*info).allowedModes as u32;
            if modes & pg_sys::SetFunctionReturnMode::SFRM_Materialize == 0 || (*info).expectedDesc.is_null()
            {
                return Err(unfit());
            }
            let before = pg_sys::MemoryContextSwitchTo((*(*info).econtext).ecxt_per_query_memory);
            let description = pg_sys::CreateTupleDescCopy((*info).expectedDesc);
            let is_random = modes & pg_sys::SetFunctionReturnMode::SFRM_Materialize_Random != 0;
            let rows = pg_sys::tuplestore_begin_heap(is_random, false, pg_sys::work_mem);
            pg_sys::MemoryContextSwitchTo(before);
            (*info).returnMode = pg_sys::SetFunctionReturnMode::SFRM_Materialize;
            (*info).setResult = rows;
            (*info).setDesc = description;
            Ok(Store { rows, description })
        }
    }
}

extension_sql_file!(
    "../../sql/comments/query.sql",
    name = "comments_query",
    requires = [shard_login_set, shard_login_drop, shard_logins, shard_query_json, shard_query]
);
