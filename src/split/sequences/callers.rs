//! What fills columns of moving tables by functions and texts: defaults and triggers, also of the views that clients
//! write through, and rules.

use super::names::names_in;
use super::tokens::one_word;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::quote::{array_of, text_array};
use crate::remote::result::Rows;
use crate::remote::template::{fill, sql, text};
use crate::remote::{Connection, number};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static CALLERS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/callers.sql")));
static VIEWS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/views.sql")));
static RELATIONS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/relations.sql")));
static PASSES: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/passes.sql")));
static KEYS: LazyLock<String> = LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/keys.sql")));
const CASTS: &str = include_str!("../../../sql/sequences/casts.sql");
const CLOSED: &str = include_str!("../../../sql/sequences/closed.sql");
const SEARCH_PATHS: &str = include_str!("../../../sql/sequences/search_paths.sql");

/// Pattern for a call of nextval() with anything but a sequence that PostgreSQL itself knows the expression to depend
/// on.
const BY_TEXT: &str = r"nextval\((?!'([^']|'')+'::regclass\))";

fn with_parts(query: &str) -> String {
    let told = sql(include_str!("../../../sql/sequences/told.sql"));
    fill(query, &[("told", told), ("by_text", text(BY_TEXT))])
}

/// The place of something that runs when clients write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CodePlace {
    /// The table itself, or no table: what clients call.
    Table,
    View,
    /// A default of another table that writes to the first one lead to.
    OtherDefault,
    /// A trigger of such a table.
    OtherRow,
}

/// A function or text that a table's clients run by writing to it.
pub struct TableCaller {
    pub table: usize,
    /// The column whose default it is.
    pub column: Option<String>,
    pub what: String,
    pub function: Option<String>,
    /// The text that calls the function, or passes an argument to it, or names a sequence itself.
    pub text: Option<String>,
    /// The number of a sequence that the text depends on.
    pub sequence: Option<String>,
    /// Columns of the table that it may fill, whatever the texts contain.
    pub fills: BTreeSet<String>,
    /// The column that it fills, if it can be no other.
    pub fill: Option<String>,
    pub place: CodePlace,
}

impl TableCaller {
    pub fn new(table: usize, what: String, function: Option<String>) -> TableCaller {
        let (fills, fill) = (BTreeSet::new(), None);
        let place = CodePlace::Table;
        TableCaller { table, column: None, what, function, text: None, sequence: None, fills, fill, place }
    }

    /// Returns what identifies its text; functions are identified by their numbers.
    pub fn key(&self) -> String {
        format!("{} {}", self.table, self.what)
    }
}

pub fn find(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Vec<TableCaller>> {
    let tables = array_of(tables.iter().copied());
    let mut found = Vec::new();
    for (query, place) in [(&CALLERS, CodePlace::Table), (&VIEWS, CodePlace::View)] {
        let rows = catalogs::ask(connection, query, &[Some(&tables)])?.rows;
        found.extend(rows.into_iter().filter_map(|row| caller(row, place)));
    }
    Ok(found)
}

/// Returns those of other tables, except for the views that show them.
pub fn of_tables(connection: &mut Connection, tables: &str) -> Result<Vec<TableCaller>> {
    let rows = catalogs::ask(connection, &CALLERS, &[Some(tables)])?.rows;
    Ok(rows.into_iter().filter_map(|row| caller(row, CodePlace::Table)).collect())
}

/// Returns where writes to tables and views lead.
pub fn passes(connection: &mut Connection, tables: &str) -> Result<Rows> {
    Ok(catalogs::ask(connection, &PASSES, &[Some(tables)])?)
}

/// Returns what gives columns of keys their values.
pub fn keys(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Rows> {
    Ok(catalogs::ask(connection, &KEYS, &[Some(&array_of(tables.iter().copied()))])?)
}

/// Returns functions of casts and of operators.
pub fn unnamed(connection: &mut Connection) -> Result<Rows> {
    Ok(catalogs::ask(connection, CASTS, &[])?)
}

/// Returns, of some names, those of functions whose texts are not read.
pub fn closed(connection: &mut Connection, names: &[String]) -> Result<BTreeSet<String>> {
    Ok(catalogs::ask(connection, CLOSED, &[Some(&text_array(names))])?.column().collect())
}

fn caller(mut row: Vec<Option<String>>, place: CodePlace) -> Option<TableCaller> {
    row.resize(7, None);
    let [position, column, what, function, text, sequence, fills] = <[_; 7]>::try_from(row).ok()?;
    Some(TableCaller {
        table: number::index(&position?)?,
        column,
        what: what?,
        function,
        text,
        sequence,
        fill: fills.as_deref().and_then(one_word),
        fills: names_in(&fills.unwrap_or_default()),
        place,
    })
}

/// Returns the names of the tables' columns.
pub fn columns(connection: &mut Connection, tables: &[Option<&str>]) -> Result<BTreeSet<String>> {
    let query = "SELECT DISTINCT attname FROM pg_attribute WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped";
    Ok(catalogs::ask(connection, query, &[Some(&array_of(tables.iter().copied()))])?.column().collect())
}

/// Returns tables and views of some names in some schemas, and the functions and sequences that they need, except
/// those that are checked separately.
pub fn relations(connection: &mut Connection, lists: &[&String; 3]) -> Result<Rows> {
    Ok(catalogs::ask(connection, &RELATIONS, &catalogs::given(lists))?)
}

/// Returns schemas where names without one may be searched, according to settings of roles and of the database.
pub fn search_paths(connection: &mut Connection) -> Result<Vec<String>> {
    let paths = catalogs::ask(connection, SEARCH_PATHS, &[])?.column();
    let names: BTreeSet<String> = paths.flat_map(|path| names_in(&path)).collect();
    Ok(names.into_iter().collect())
}
