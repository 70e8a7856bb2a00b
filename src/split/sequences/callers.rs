//! What fills columns of moving tables by functions and texts: defaults and triggers, also of the views that clients write through,
//! and rules.

use super::doings;
use super::names::names_in;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::array_of;
use crate::remote::result::Rows;
use crate::remote::template::{fill, sql, text};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static CALLERS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/callers.sql")));
static VIEWS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/views.sql")));
static RELATIONS: LazyLock<String> =
    LazyLock::new(|| with_parts(include_str!("../../../sql/sequences/relations.sql")));
const WRITERS: &str = include_str!("../../../sql/sequences/writers.sql");
const SEARCH_PATHS: &str = include_str!("../../../sql/sequences/search_paths.sql");

/// Functions that may write to a table are looked at, so many at most.
const MOST_WRITERS: usize = 1_000;

/// A call of nextval() with anything but a sequence that PostgreSQL itself knows the expression to depend on.
const BY_TEXT: &str = r"nextval\((?!'([^']|'')+'::regclass\))";

fn with_parts(query: &str) -> String {
    let told = sql(include_str!("../../../sql/sequences/told.sql"));
    fill(query, &[("told", told), ("by_text", text(BY_TEXT))])
}

/// What a table's clients have called, or read, by writing to it.
pub struct Caller {
    pub table: usize,
    /// Of which it is the default.
    pub column: Option<String>,
    pub what: String,
    pub function: Option<String>,
    /// What calls the function, or tells it something; or what names a sequence by itself.
    pub text: Option<String>,
    /// The number of one that the text depends on.
    pub sequence: Option<String>,
    /// Columns of the table that it may fill, whatever the texts say.
    pub fills: BTreeSet<String>,
    /// The one that it fills, where it can be no other.
    pub fill: Option<String>,
}

impl Caller {
    /// What its text is known by, beside functions, which are known by their numbers.
    pub fn key(&self) -> String {
        format!("{} {}", self.table, self.what)
    }
}

pub fn find(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Vec<Caller>> {
    let tables = array_of(tables.iter().copied());
    let mut found = Vec::new();
    for query in [&CALLERS, &VIEWS] {
        let rows = catalogs::ask(connection, query, &[Some(&tables)])?.rows;
        found.extend(rows.into_iter().filter_map(caller));
    }
    Ok(found)
}

/// Functions whose texts name a table and write, perhaps to it. Whether anybody calls them is not known.
pub fn writers(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Vec<Caller>> {
    let (tables, most) = (array_of(tables.iter().copied()), MOST_WRITERS.to_string());
    let rows = catalogs::ask(connection, WRITERS, &[Some(&tables), Some(&most)])?.rows;
    Ok(rows.into_iter().filter_map(caller).collect())
}

fn caller(mut row: Vec<Option<String>>) -> Option<Caller> {
    row.resize(7, None);
    let [position, column, what, function, text, sequence, fills] = <[_; 7]>::try_from(row).ok()?;
    Some(Caller {
        table: position?.parse::<usize>().ok()?.checked_sub(1)?,
        column,
        what: what?,
        function,
        text,
        sequence,
        fill: fills.as_deref().and_then(doings::one_word),
        fills: names_in(&fills.unwrap_or_default()),
    })
}

/// What columns of the tables are called.
pub fn columns(connection: &mut Connection, tables: &[Option<&str>]) -> Result<BTreeSet<String>> {
    let query = "SELECT DISTINCT attname FROM pg_attribute WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped";
    let rows = catalogs::ask(connection, query, &[Some(&array_of(tables.iter().copied()))])?.rows;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

/// Tables and views of some names in some schemas, and which functions and sequences they need: all but those that are looked at by
/// themselves.
pub fn relations(connection: &mut Connection, lists: &[Option<&str>; 3]) -> Result<Rows> {
    Ok(catalogs::ask(connection, &RELATIONS, lists)?)
}

/// Schemas where names without one may be looked for, as settings of roles and of the database have it.
pub fn search_paths(connection: &mut Connection) -> Result<Vec<String>> {
    let rows = catalogs::ask(connection, SEARCH_PATHS, &[])?.rows;
    let paths = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
    let names: BTreeSet<String> = paths.flat_map(|path| names_in(&path)).collect();
    Ok(names.into_iter().collect())
}
