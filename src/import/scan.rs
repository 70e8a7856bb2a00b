//! A scan of a foreign table: a query of the shards that may have its rows, which begins when the first row is
//! requested.

use super::condition::{self, KeyCondition};
use super::error;
use super::options::Options;
use super::plan::ImportPlan;
use super::text;
use crate::catalog::caller::Caller;
use crate::catalog::table_policy::{self, TableName};
use crate::catalog::{keyspace, routing_history};
use crate::error::Failure;
use crate::keys::key_type::KeyType;
use crate::query::between::{self, Hidden};
use crate::query::record::{self, SeenShards};
use crate::query::run::{Query, QueryEvent, RunningQuery, Statement, require_fit};
use crate::remote::fan_out::ShardRow;
use crate::server::{settings, sql};
use pgrx::datum::FromDatum;
use pgrx::{PgList, pg_sys};
use std::collections::HashSet;

/// How often routing may change while only some shards are asked, before all of them are.
const TRIES: usize = 3;

/// A running scan of a foreign table.
pub struct Scan {
    plan: ImportPlan,
    options: Options,
    /// The query's values, which are evaluated when the scan begins.
    values: *mut pg_sys::List,
    columns: Vec<ScanColumn>,
    /// No setting affects how its values are read.
    is_plain: bool,
    meta: *mut pg_sys::AttInMetadata,
    state: ScanState,
    compared: SeenShards,
}

enum ScanState {
    New,
    Running(Box<RunningQuery>),
    Done,
}

/// A column that the query needs.
struct ScanColumn {
    /// The position, from zero.
    position: usize,
    name: String,
    kind: pg_sys::Oid,
}

/// A value of the query, in the forms for shards and for routes.
struct QueryValue {
    kind: pg_sys::Oid,
    /// `None` if the value is NULL.
    text: Option<String>,
    /// The elements, if the value is a list.
    items: Option<Vec<Option<String>>>,
}

impl Scan {
    /// # Safety
    /// The executor calls this with a scan of this wrapper that begins; its results live in the executor's memory.
    pub unsafe fn begin(node: *mut pg_sys::ForeignScanState) -> Result<Scan, Failure> {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            let scan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
            let plan = ImportPlan::from_list((*scan).fdw_private).ok_or_else(error::no_plan)?;
            let table = (*node).ss.ss_currentRelation;
            let meta = pg_sys::TupleDescGetAttInMetadata((*table).rd_att);
            let columns = columns_of(&plan, (*table).rd_att);
            let is_plain = columns.iter().all(|column| condition::is_plain(column.kind));
            let values = pg_sys::ExecInitExprList((*scan).fdw_exprs, &mut (*node).ss.ps);
            let options = Options::of((*table).rd_id)?;
            Ok(Scan {
                plan,
                options,
                values,
                columns,
                is_plain,
                meta,
                state: ScanState::New,
                compared: SeenShards::default(),
            })
        }
    }

    /// Returns the statement for EXPLAIN, with numbers in place of its values.
    pub fn shown(&self) -> String {
        let values: Vec<String> = (1..self.plan.texts.len()).map(|number| format!("${number}")).collect();
        self.plan.statement(&self.options.table, &self.names(), &values)
    }

    pub fn restart(&mut self) {
        self.state = ScanState::New;
        self.compared.clear();
    }

    pub fn end(&mut self) {
        self.state = ScanState::Done;
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Puts the next row into the node's slot. Returns false if there is none.
    ///
    /// # Safety
    /// The executor calls this for a row of the node.
    pub unsafe fn next(&mut self, node: *mut pg_sys::ForeignScanState) -> Result<bool, Failure> {
        if matches!(self.state, ScanState::New) {
            // SAFETY: the caller keeps the promise above.
            let values = unsafe { self.evaluated(node) };
            self.state = ScanState::Running(Box::new(self.ask(&values)?));
        }
        let ScanState::Running(running) = &mut self.state else { return Ok(false) };
        match running.next() {
            Some(QueryEvent::Row(number, row)) => {
                if self.compared.is_new(number) {
                    require_alike(&self.columns, running.shard(number), &row)?;
                }
                // SAFETY: the caller keeps the promise above.
                unsafe { self.fill((*node).ss.ss_ScanTupleSlot, &row) };
                Ok(true)
            }
            Some(QueryEvent::Failed(_, failure)) => {
                self.state = ScanState::Done;
                Err(failure)
            }
            None => {
                // A shard that has compared other types than declared has left out rows, perhaps all of them.
                for (number, row) in running.take_columns() {
                    if self.compared.is_new(number) {
                        require_alike(&self.columns, running.shard(number), &row)?;
                    }
                }
                self.state = ScanState::Done;
                Ok(false)
            }
        }
    }

    /// # Safety
    /// The current memory is that of a row, and the slot is the node's, empty.
    unsafe fn fill(&self, slot: *mut pg_sys::TupleTableSlot, row: &ShardRow) {
        // SAFETY: the caller keeps the promise above; positions are those of the table's columns, all of which the
        // slot has.
        unsafe {
            let count = usize::try_from((*(*self.meta).tupdesc).natts).unwrap_or(0);
            for position in 0..count {
                *(*slot).tts_isnull.add(position) = true;
                *(*slot).tts_values.add(position) = pg_sys::Datum::from(0);
            }
            // Setting them for each row would cost as much as the row itself if it has only numbers and texts, which
            // need no settings.
            let settings = if self.is_plain { &[][..] } else { &record::AS_SENT[..] };
            settings::with(settings, || {
                for (number, column) in self.columns.iter().enumerate() {
                    let Some(value) = row.value(number) else { continue };
                    let value = record::to_server(value);
                    let datum = pg_sys::InputFunctionCall(
                        (*self.meta).attinfuncs.add(column.position),
                        value,
                        *(*self.meta).attioparams.add(column.position),
                        *(*self.meta).atttypmods.add(column.position),
                    );
                    *(*slot).tts_values.add(column.position) = datum;
                    *(*slot).tts_isnull.add(column.position) = false;
                }
            });
            pg_sys::ExecStoreVirtualTuple(slot);
        }
    }

    /// # Safety
    /// The promise of `next` holds.
    unsafe fn evaluated(&self, node: *mut pg_sys::ForeignScanState) -> Vec<QueryValue> {
        // SAFETY: the caller keeps the promise above; these are states of expressions, in their order.
        unsafe {
            let context = (*node).ss.ps.ps_ExprContext;
            let states = PgList::<pg_sys::ExprState>::from_pg(self.values);
            states.iter_ptr().map(|state| QueryValue::of(state, context)).collect()
        }
    }

    /// Asks the shards that may have rows.
    fn ask(&self, values: &[QueryValue]) -> Result<RunningQuery, Failure> {
        require_fit("shard_query")?;
        let (table, shard_by) = Caller::as_owner(|caller| self.require_readable(caller))?;
        let texts: Vec<String> =
            values.iter().map(|value| text::literal_of(value.text.as_deref(), value.kind)).collect();
        let statement = |namespace: &str, seen: &[&Hidden]| {
            self.plan.statement(&between::name_of(&table, namespace, seen), &self.names(), &texts)
        };
        let by_key = self.plan.keys.iter().find(|key| self.is_called(**key, &shard_by));
        if let Some(value) =
            by_key.and_then(|key| values.get(key.value).filter(|value| value.items.is_some() == key.is_list))
        {
            for _ in 0..TRIES {
                let (version, Some(shards)) = self.shards_of(value)? else { break };
                let running = self.begin_query(&statement, &table, Some(&shards))?;
                // No route has changed until the shards had their snapshots.
                if Caller::as_owner(|_| keyspace::latest_version(&self.options.keyspace)) == version {
                    return Ok(running);
                }
            }
        }
        self.begin_query(&statement, &table, None)
    }

    fn begin_query(
        &self,
        statement: &dyn Fn(&str, &[&Hidden]) -> String,
        table: &TableName,
        shards: Option<&[String]>,
    ) -> Result<RunningQuery, Failure> {
        Query {
            statement: Statement::Made(statement),
            select: "*",
            then: "",
            keyspace: &self.options.keyspace,
            first_schema: table.schema.as_deref(),
            shards,
            timeout: self.options.timeout,
            reports: false,
            whole: false,
        }
        .begin()
    }

    /// Returns the table and its shard-by column, and requires that the caller may ask the shards.
    fn require_readable(&self, caller: &Caller) -> Result<(TableName, String), Failure> {
        if !may_ask(caller) {
            return Err(error::no_level());
        }
        let Options { keyspace, table, .. } = &self.options;
        let found = table_policy::list(keyspace).into_iter().find(|policy| policy.table_name == *table);
        let named = found.and_then(|policy| Some((TableName::parse(&policy.table_name)?, policy.shard_by)));
        named.ok_or_else(|| error::not_in_keyspace(table, keyspace))
    }

    fn is_called(&self, key: KeyCondition, name: &str) -> bool {
        let position = usize::try_from(key.column - 1).ok();
        self.columns.iter().any(|column| Some(column.position) == position && column.name == name)
    }

    /// Returns the shards that a value's keys are routed to, and the routing version. The shards are `None` if any
    /// shard may have its rows, because a key has no route, or a value is not a key.
    fn shards_of(&self, value: &QueryValue) -> Result<(i64, Option<Vec<String>>), Failure> {
        Caller::as_owner(|_| {
            let found = keyspace::find(&self.options.keyspace)?;
            let version = keyspace::latest_version(&found.name);
            let Some(keys) = value.keys(found.key_type()) else { return Ok((version, None)) };
            let shards: Option<HashSet<String>> =
                routing_history::shards_at(&found, &keys, version).into_iter().collect();
            Ok((version, shards.map(|shards| shards.into_iter().collect())))
        })
    }
}

/// Requires that a shard's columns are of the table's types.
fn require_alike(columns: &[ScanColumn], shard: &str, row: &ShardRow) -> Result<(), Failure> {
    let declared: Vec<u32> = columns.iter().map(|column| column.kind.to_u32()).collect();
    record::require_cast_alike(&declared, shard, row)
}

/// Returns the needed columns in the order of the table; all of them for a whole row.
///
/// # Safety
/// The description is that of the table.
unsafe fn columns_of(plan: &ImportPlan, description: pg_sys::TupleDesc) -> Vec<ScanColumn> {
    // SAFETY: the caller keeps the promise above.
    let description = unsafe { pgrx::PgTupleDesc::from_pg_copy(description) };
    let is_needed = |number: i16| plan.columns.contains(&0) || plan.columns.contains(&number);
    let mut columns = Vec::new();
    for (position, attribute) in description.iter().enumerate() {
        if !attribute.attisdropped && is_needed(attribute.attnum) {
            let name = attribute.name().to_owned();
            columns.push(ScanColumn { position, name, kind: attribute.atttypid });
        }
    }
    columns
}

/// Whether the caller has the level that asks all shards.
fn may_ask(caller: &Caller) -> bool {
    sql::read_one(
        "SELECT coalesce(bool_and(has_function_privilege($1, p.oid, 'EXECUTE')), false)
           FROM pg_extension e
           JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                           AND d.classid = 'pg_proc'::regclass
           JOIN pg_proc p ON p.oid = d.objid
          WHERE e.extname = 'shardmaster' AND p.proname = 'shard_query'",
        &[caller.id().into()],
        |row| row.value(1),
    )
    .unwrap_or(false)
}

impl QueryValue {
    /// # Safety
    /// The expression is one of a scan, and the context is the scan's.
    unsafe fn of(state: *mut pg_sys::ExprState, context: *mut pg_sys::ExprContext) -> QueryValue {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            let kind = pg_sys::exprType((*state).expr.cast());
            let mut is_null = false;
            let datum = match (*state).evalfunc {
                // An error that it raises passes through values that have to be dropped here.
                Some(evaluate) => {
                    pg_sys::ffi::pg_guard_ffi_boundary(|| evaluate(state, context, &raw mut is_null))
                }
                None => return QueryValue { kind, text: None, items: None },
            };
            if is_null {
                return QueryValue { kind, text: None, items: None };
            }
            let items = items_of(datum, kind);
            QueryValue { kind, text: Some(text::of_value(datum, kind)), items }
        }
    }

    /// Returns the keys of the rows that satisfy the condition, or None if they are not known, or some are not keys of
    /// that type.
    fn keys(&self, key_type: KeyType) -> Option<Vec<String>> {
        // No key is NULL.
        let texts: Vec<String> = match &self.items {
            Some(items) => items.iter().flatten().cloned().collect(),
            None => vec![self.text.clone()?],
        };
        let is_key = |text: &String| match key_type {
            KeyType::Text | KeyType::VarChar => TEXTUAL.contains(&self.kind),
            KeyType::SmallInt => text.parse::<i16>().is_ok_and(|number| number.to_string() == *text),
            KeyType::Integer => text.parse::<i32>().is_ok_and(|number| number.to_string() == *text),
            KeyType::BigInt => text.parse::<i64>().is_ok_and(|number| number.to_string() == *text),
            KeyType::Uuid => self.kind == pg_sys::UUIDOID,
            KeyType::Char | KeyType::Numeric => false,
        };
        (!texts.is_empty() && texts.iter().all(is_key)).then_some(texts)
    }
}

/// The types whose texts are texts of keys.
const TEXTUAL: [pg_sys::Oid; 9] = [
    pg_sys::TEXTOID,
    pg_sys::VARCHAROID,
    pg_sys::INT2OID,
    pg_sys::INT4OID,
    pg_sys::INT8OID,
    pg_sys::TEXTARRAYOID,
    pg_sys::VARCHARARRAYOID,
    pg_sys::INT4ARRAYOID,
    pg_sys::INT8ARRAYOID,
];

/// Returns the texts of an array's elements, for types that keys have.
unsafe fn items_of(datum: pg_sys::Datum, kind: pg_sys::Oid) -> Option<Vec<Option<String>>> {
    let numbers = |numbers: Vec<Option<i64>>| numbers.into_iter().map(|n| n.map(|n| n.to_string())).collect();
    // SAFETY: the promise of `QueryValue::of` holds: this is an array of that type.
    unsafe {
        match kind {
            pg_sys::TEXTARRAYOID | pg_sys::VARCHARARRAYOID => Vec::<Option<String>>::from_datum(datum, false),
            pg_sys::INT8ARRAYOID => Vec::<Option<i64>>::from_datum(datum, false).map(numbers),
            pg_sys::INT4ARRAYOID => Vec::<Option<i32>>::from_datum(datum, false)
                .map(|list| numbers(list.into_iter().map(|n| n.map(i64::from)).collect())),
            _ => None,
        }
    }
}
