//! One page of the rows of all shards, in order: each shard returns its own first rows after the last page, and the
//! first of all of them are the next page. Invariant: no row is left out between two pages, so that what cannot be
//! told apart by the order, or is ordered otherwise by this server than by the shards, is an error.

use super::error;
use super::run::{Query, QueryEvent};
use crate::catalog::table_policy::parse_column;
use crate::error::Failure;
use crate::remote::fan_out::ShardRow;
use crate::remote::quote::{ident, literal};
use crate::server::sql;
use crate::words::listed;
use pgrx::pg_sys;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

/// The greatest number of rows of a page: it is completed before its first row is returned.
pub const MOST: usize = 10_000;

/// The number of pages that are kept of the rows that have arrived.
const KEPT: usize = 4;
/// The greatest number of bytes of a page and the row after it, and half of what is kept.
const MOST_BYTES: usize = 256 << 20;

/// Types that every server orders alike, with their names; texts only by their bytes.
const ORDERED: [(u32, &str); 11] = [
    (20, "int8"),
    (21, "int2"),
    (23, "int4"),
    (700, "float4"),
    (701, "float8"),
    (1700, "numeric"),
    (1082, "date"),
    (1114, "timestamp"),
    (1184, "timestamptz"),
    (2950, "uuid"),
    (25, "text"),
];
const TEXT: u32 = 25;
/// varchar is compared as text.
const VARCHAR: u32 = 1043;
/// Encodings whose bytes have the order of the characters' numbers.
const BY_NUMBER: [&str; 3] = ["UTF8", "LATIN1", "SQL_ASCII"];

fn server_encoding() -> String {
    // SAFETY: this returns a constant of the server by its number.
    let name = unsafe { CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) };
    name.to_string_lossy().into_owned()
}

/// A column by which rows are ordered.
pub struct Order {
    pub column: String,
    is_by_bytes: bool,
    is_descending: bool,
}

impl Order {
    /// Parses `column [COLLATE "C"] [ASC | DESC]`.
    pub fn parse(text: &str) -> Order {
        let text = text.trim();
        let without = |text: &str, word: &str| -> Option<String> {
            let at = text.len().checked_sub(word.len())?;
            let rest = text.get(..at)?;
            let is_word = text.get(at..)?.eq_ignore_ascii_case(word) && rest.ends_with(char::is_whitespace);
            is_word.then(|| rest.trim_end().to_owned())
        };
        let (rest, is_descending) = match (without(text, "DESC"), without(text, "ASC")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => (text.to_owned(), false),
        };
        let (rest, is_by_bytes) = match without(&rest, "COLLATE \"C\"") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        Order { column: parse_column(&rest), is_by_bytes, is_descending }
    }

    fn value(&self) -> String {
        let collate = if self.is_by_bytes { " COLLATE \"C\"" } else { "" };
        format!("answer.{}{collate}", ident(&self.column))
    }

    fn direction(&self) -> &'static str {
        if self.is_descending { "DESC" } else { "ASC" }
    }

    fn comparison(&self) -> &'static str {
        if self.is_descending { "<" } else { ">" }
    }
}

pub struct Page<'a> {
    pub query: Query<'a>,
    pub order: &'a [Order],
    pub rows: usize,
}

/// A row with the values that it is ordered by.
struct Placed {
    values: Vec<String>,
    row: CString,
}

impl Placed {
    /// Returns its bytes. Values exist several times while they are ordered.
    fn bytes(&self) -> usize {
        self.row.as_bytes().len() + 4 * self.values.iter().map(String::len).sum::<usize>()
    }
}

/// What each shard is asked for, of `FROM (statement) AS answer`.
pub struct PageWords {
    pub select: String,
    pub then: String,
}

/// Returns these texts. One row more than a page is requested, to check that it differs from the last one.
pub fn words(order: &[Order], after: Option<&[String]>, rows: usize) -> PageWords {
    let columns = |text: &dyn Fn(&Order) -> String| listed(order.iter().map(text));
    let plain = |order: &Order| format!("answer.{}", ident(&order.column));
    let mut conditions: Vec<String> =
        order.iter().map(|order| format!("{} IS NOT NULL", plain(order))).collect();
    conditions.extend(after.map(|values| behind(order, values)));
    PageWords {
        select: format!(
            "{}, pg_catalog.row_to_json(answer.*), pg_catalog.current_setting('server_encoding')",
            columns(&plain)
        ),
        then: format!(
            " WHERE {} ORDER BY {} LIMIT {}",
            conditions.join(" AND "),
            columns(&|order| format!("{} {}", order.value(), order.direction())),
            rows + 1
        ),
    }
}

/// Returns the condition for rows after these values. If all columns have one direction, it is a row comparison, which
/// an index can serve.
fn behind(order: &[Order], values: &[String]) -> String {
    let all: Vec<(&Order, String)> =
        order.iter().zip(values).map(|(order, value)| (order, literal(value))).collect();
    let Some((first, _)) = all.first() else { return "true".to_owned() };
    if all.iter().all(|(order, _)| order.is_descending == first.is_descending) {
        let list = |of: &dyn Fn(&(&Order, String)) -> String| listed(all.iter().map(of));
        let (columns, values) = (list(&|(order, _)| order.value()), list(&|(_, value)| value.clone()));
        return format!("ROW({columns}) {} ROW({values})", first.comparison());
    }
    let nested = |behind: String, (order, value): &(&Order, String)| {
        let (column, is_behind) = (order.value(), order.comparison());
        format!("({column} {is_behind} {value} OR {column} = {value} AND {behind})")
    };
    all.iter().rev().fold("false".to_owned(), nested)
}

impl Page<'_> {
    /// Returns the rows, as JSON.
    pub fn run(&self) -> Result<Vec<CString>, Failure> {
        let mut running = self.query.begin()?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut types = BTreeMap::new();
        while let Some(event) = running.next() {
            match event {
                QueryEvent::Failed(_, failure) => return Err(failure),
                QueryEvent::Row(number, row) => {
                    self.compare_types(running.shard(number), &row, &mut types)?;
                    let placed = self.placed(&row);
                    bytes += placed.bytes();
                    found.push(placed);
                }
            }
            // Only some pages are kept, however many shards there are, and however long their rows are.
            if found.len() >= KEPT * (self.rows + 1) || bytes > 2 * MOST_BYTES {
                found = self.first_of(found, &types, self.rows + 1).0;
                bytes = found.iter().map(Placed::bytes).sum();
                if bytes > MOST_BYTES {
                    return Err(error::long_page(MOST_BYTES >> 20));
                }
            }
        }
        let (found, ranks) = self.first_of(found, &types, self.rows + 1);
        if let (Some(last), Some(next)) = (ranks.get(self.rows - 1), ranks.get(self.rows))
            && last == next
        {
            return Err(error::no_total_order());
        }
        Ok(found.into_iter().take(self.rows).map(|placed| placed.row).collect())
    }

    fn placed(&self, row: &ShardRow) -> Placed {
        let value = |column| row.value(column).map(|value| value.to_string_lossy().into_owned());
        Placed {
            values: (0..self.order.len()).map(|column| value(column).unwrap_or_default()).collect(),
            row: row.value(self.order.len()).map(Into::into).unwrap_or_default(),
        }
    }

    /// Requires that all shards have a column of one type, which all of them order alike: a text by its bytes there.
    fn compare_types(
        &self,
        shard: &str,
        row: &ShardRow,
        types: &mut BTreeMap<usize, u32>,
    ) -> Result<(), Failure> {
        let own = server_encoding();
        for (column, order) in self.order.iter().enumerate() {
            let found = match row.type_number(column) {
                VARCHAR => TEXT,
                other => other,
            };
            let is_known = ORDERED.iter().any(|(number, _)| *number == found);
            let is_same = *types.entry(column).or_insert(found) == found;
            let encoding = row.value(self.order.len() + 1).map(CStr::to_string_lossy);
            let is_by_number = |encoding: &str| BY_NUMBER.contains(&encoding);
            let has_order =
                found != TEXT || encoding.as_deref().is_some_and(is_by_number) && is_by_number(&own);
            if !is_known || !is_same || !has_order || (found == TEXT) != order.is_by_bytes {
                return Err(error::no_order(shard, &order.column));
            }
        }
        Ok(())
    }

    /// Returns the first ones in order, with their ranks.
    fn first_of(
        &self,
        found: Vec<Placed>,
        types: &BTreeMap<usize, u32>,
        count: usize,
    ) -> (Vec<Placed>, Vec<i64>) {
        let ranks = self.ranks(&found, types);
        let mut found: Vec<Option<Placed>> = found.into_iter().map(Some).collect();
        let first = ranks.into_iter().take(count);
        first.filter_map(|(rank, at)| Some((found.get_mut(at)?.take()?, rank))).unzip()
    }

    /// Returns the rank and the number of each row, in order; equal rows have one rank.
    fn ranks(&self, found: &[Placed], types: &BTreeMap<usize, u32>) -> Vec<(i64, usize)> {
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); self.order.len()];
        for placed in found {
            for (list, value) in lists.iter_mut().zip(&placed.values) {
                list.push(value.clone());
            }
        }
        let places: Vec<String> = (1..=lists.len())
            .map(|column| format!("pg_catalog.unnest(${column}::pg_catalog.text[])"))
            .collect();
        let by: Vec<String> = self
            .order
            .iter()
            .enumerate()
            .map(|(column, order)| {
                let number = types.get(&column).copied().unwrap_or(TEXT);
                let name =
                    ORDERED.iter().find(|(known, _)| *known == number).map_or("text", |(_, name)| name);
                let collate = if number == TEXT { " COLLATE \"C\"" } else { "" };
                format!("r.v{column}::pg_catalog.{name}{collate} {}", order.direction())
            })
            .collect();
        let names: Vec<String> = (0..lists.len()).map(|column| format!("v{column}")).collect();
        let query = format!(
            "SELECT pg_catalog.dense_rank() OVER (ORDER BY {}) AS rank, r.n FROM ROWS FROM ({}) WITH ORDINALITY AS r ({}, n)
              ORDER BY 1, 2",
            by.join(", "),
            places.join(", "),
            names.join(", ")
        );
        let arguments: Vec<_> = lists.into_iter().map(Into::into).collect();
        sql::read(&query, &arguments, |row| {
            let number: i64 = row.value(2);
            (row.value(1), usize::try_from(number - 1).unwrap_or(usize::MAX))
        })
    }
}
