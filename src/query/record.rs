//! Rows of shards as values of this server: texts that its own input functions read, as the calling role.

use super::error;
use crate::error::Failure;
use crate::remote::fan_out::ShardRow;
use pgrx::pg_sys;
use pgrx::tupdesc::PgTupleDesc;
use serde_json::json;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};

/// The name of a shard's error report, in either form of rows.
pub const ERROR: &str = "shard_error";

/// Types below this number are the server's own, and have the same number everywhere.
const BUILTIN: u32 = 16_384;
/// text, varchar, char(n) and name are all texts.
const TEXTS: [u32; 4] = [25, 1043, 1042, 19];

/// Settings with which this server's input functions read a text as it was sent.
pub const AS_SENT: [(&CStr, &CStr); 3] =
    [(c"array_nulls", c"on"), (c"xmloption", c"content"), (c"lc_monetary", c"C")];

/// Returns a text of a shard in this server's encoding. An invalid text is an error of the server.
///
/// # Safety
/// A transaction is open. The text lives as long as both the current memory context and the argument.
pub unsafe fn to_server(text: &CStr) -> *mut c_char {
    let length = i32::try_from(text.to_bytes().len()).unwrap_or(i32::MAX);
    let utf8 = pg_sys::pg_enc::PG_UTF8 as i32;
    // SAFETY: the caller keeps the promise above; the text is not written to.
    unsafe { pg_sys::pg_any_to_server(text.as_ptr(), length, utf8) }
}

/// A value of `jsonb` by its text, made when it is returned.
pub enum Json {
    Row(ShardRow),
    Text(CString),
}

impl Json {
    /// Returns the value as jsonb's input function reads it.
    ///
    /// # Safety
    /// A transaction is open.
    pub unsafe fn datum(&self) -> Option<pg_sys::Datum> {
        let text = match self {
            Json::Row(row) => row.value(0)?,
            Json::Text(text) => text,
        };
        // SAFETY: the caller keeps the promise above; the function takes a C string.
        unsafe {
            let text = to_server(text);
            pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(pg_sys::Datum::from(text))])
        }
    }
}

/// Returns why a shard has not answered, as JSON.
pub fn report(shard: &str, failure: &Failure) -> CString {
    let failure = failure.cleaned();
    let value = json!({
        "shard": shard,
        "sqlstate": failure.sqlstate.as_str(),
        "message": failure.message,
        "detail": failure.detail,
        "hint": failure.hint,
    });
    CString::new(value.to_string()).unwrap_or_default()
}

/// The shards that were seen, by their numbers; this is checked for each row.
#[derive(Default)]
pub struct SeenShards(Vec<bool>);

impl SeenShards {
    /// Whether it is the first time.
    pub fn is_new(&mut self, number: usize) -> bool {
        match self.0.get_mut(number) {
            Some(seen) => !std::mem::replace(seen, true),
            None => {
                self.0.resize(number, false);
                self.0.push(true);
                true
            }
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Rows of the columns that a caller has declared.
pub struct RecordShape {
    columns: Vec<(u32, String)>,
    meta: *mut pg_sys::AttInMetadata,
    reports: bool,
    /// For each shard by its number, whether its columns were compared with the declared ones.
    compared: SeenShards,
    first: Option<First>,
    /// Shards with another order of columns: the position of each declared one.
    orders: HashMap<usize, Vec<usize>>,
}

impl RecordShape {
    /// # Safety
    /// The description of a row lives as long as this.
    pub unsafe fn of(description: pg_sys::TupleDesc, reports: bool) -> Result<RecordShape, Failure> {
        // SAFETY: the caller keeps the promise above.
        let (meta, description) = unsafe {
            (pg_sys::TupleDescGetAttInMetadata(description), PgTupleDesc::from_pg_copy(description))
        };
        let columns =
            description.iter().map(|column| (column.atttypid.to_u32(), column.name().to_owned())).collect();
        let shape = RecordShape {
            columns,
            meta,
            reports,
            compared: SeenShards::default(),
            first: None,
            orders: HashMap::new(),
        };
        let last = shape.columns.last().map(|(number, name)| (*number, name.as_str()));
        if reports && last != Some((pg_sys::JSONBOID.to_u32(), ERROR)) {
            return Err(error::no_error_column());
        }
        Ok(shape)
    }

    /// Returns the number of the statement's columns, without that of errors.
    fn count(&self) -> usize {
        self.columns.len() - usize::from(self.reports)
    }

    /// Returns a row of a shard, whose number shows whether its columns were checked before.
    pub fn row(&mut self, number: usize, shard: &str, row: &ShardRow) -> Result<pg_sys::HeapTuple, Failure> {
        if self.compared.is_new(number) {
            self.compare(number, shard, row)?;
        }
        let order = self.orders.get(&number);
        let mut values: Vec<*mut c_char> = Vec::with_capacity(self.columns.len());
        for column in 0..self.count() {
            let at = order.and_then(|order| order.get(column).copied()).unwrap_or(column);
            // SAFETY: a transaction is open; the row outlives the making of the tuple.
            values.push(row.value(at).map_or(std::ptr::null_mut(), |text| unsafe { to_server(text) }));
        }
        values.resize(self.columns.len(), std::ptr::null_mut());
        // SAFETY: there are as many values as columns.
        Ok(unsafe { pg_sys::BuildTupleFromCStrings(self.meta, values.as_mut_ptr()) })
    }

    /// Returns the row of a shard that has not answered.
    pub fn failed(&self, shard: &str, failure: &Failure) -> pg_sys::HeapTuple {
        let report = report(shard, failure);
        let mut values: Vec<*mut c_char> = vec![std::ptr::null_mut(); self.columns.len()];
        if let Some(last) = values.last_mut() {
            // SAFETY: as above.
            *last = unsafe { to_server(&report) };
        }
        // SAFETY: as above.
        unsafe { pg_sys::BuildTupleFromCStrings(self.meta, values.as_mut_ptr()) }
    }

    fn compare(&mut self, number: usize, shard: &str, row: &ShardRow) -> Result<(), Failure> {
        let (found, declared) = (row.columns(), self.count());
        if found != declared {
            return Err(error::other_count(shard, found, declared));
        }
        if let Some(order) = self.other_order(shard, row)? {
            self.orders.insert(number, order);
        }
        let order = self.orders.get(&number);
        for (column, (kind, _)) in self.columns.iter().take(declared).enumerate() {
            let at = order.and_then(|order| order.get(column).copied()).unwrap_or(column);
            let found = row.type_number(at);
            if !is_alike(found, *kind) {
                return Err(other_type(shard, at, found, *kind));
            }
        }
        Ok(())
    }

    /// Returns the order of a shard's columns. If they have the names of the declared ones, they are matched by name,
    /// in any order. Otherwise they are the declared ones by position, and all shards must have the same ones; then it
    /// returns None.
    fn other_order(&mut self, shard: &str, row: &ShardRow) -> Result<Option<Vec<usize>>, Failure> {
        // SAFETY: a transaction is open; the name outlives the text that is made of it.
        let here = |name: &CStr| unsafe { CStr::from_ptr(to_server(name)).to_string_lossy().into_owned() };
        let names: Vec<String> =
            (0..row.columns()).map(|column| row.name(column).map(here).unwrap_or_default()).collect();
        let order = by_names(self.columns.iter().take(names.len()).map(|(_, name)| name.as_str()), &names);
        let Some(first) = &self.first else {
            self.first = Some(First { names, shard: shard.to_owned(), is_by_names: order.is_some() });
            return Ok(order);
        };
        if first.is_by_names == order.is_some() && (order.is_some() || first.names == names) {
            return Ok(order);
        }
        Err(error::other_columns(shard, &names.join(", "), &first.shard, &first.names.join(", ")))
    }
}

/// Returns the position of each declared column among these. Returns None if a name is missing or repeated.
fn by_names<'a>(declared: impl Iterator<Item = &'a str>, names: &[String]) -> Option<Vec<usize>> {
    declared
        .map(|declared| {
            let mut same = (0..names.len()).filter(|at| names[*at] == declared);
            same.next().filter(|_| same.next().is_none())
        })
        .collect()
}

/// The shard that answered first.
struct First {
    names: Vec<String>,
    shard: String,
    is_by_names: bool,
}

/// Requires that a shard's columns have the declared types, or types that can be read as these.
pub fn require_alike(declared: &[u32], shard: &str, row: &ShardRow) -> Result<(), Failure> {
    for (column, declared) in declared.iter().enumerate() {
        let found = row.type_number(column);
        if !is_alike(found, *declared) {
            return Err(other_type(shard, column, found, *declared));
        }
    }
    Ok(())
}

/// Types whose text differs between a cast and the sent form: trailing blanks, and abbreviations.
const OTHERWISE_CAST: [u32; 4] = [16, 142, 869, 1042];

/// Requires this for shards that have compared columns cast to text.
pub fn require_cast_alike(declared: &[u32], shard: &str, row: &ShardRow) -> Result<(), Failure> {
    require_alike(declared, shard, row)?;
    for (column, declared) in declared.iter().enumerate() {
        let found = row.type_number(column);
        if TEXTS[..2].contains(declared) && OTHERWISE_CAST.contains(&found) {
            return Err(other_type(shard, column, found, *declared));
        }
    }
    Ok(())
}

fn other_type(shard: &str, column: usize, found: u32, declared: u32) -> Failure {
    error::other_type(shard, column + 1, &type_name(found), &type_name(declared))
}

/// Whether values of one type are read as the other: for types that are not the server's own, whose numbers differ
/// from server to server, their texts decide.
fn is_alike(found: u32, declared: u32) -> bool {
    found == declared
        || found >= BUILTIN
        || declared >= BUILTIN
        || declared == TEXTS[0]
        || TEXTS.contains(&found) && TEXTS.contains(&declared)
}

fn type_name(number: u32) -> String {
    // SAFETY: a transaction is open; a number without a type has a name, too.
    unsafe {
        let text = pg_sys::format_type_be(number.into());
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
