//! The statement that looks at rows of one table, and its answer.

use super::tables::{SurveyTable, SurveyedDatabase, TypeClass, whole_number};
use crate::remote::quote::ident;
use crate::remote::result::Rows;
use crate::remote::template::{fill, number, sql, text, word};
use std::collections::BTreeSet;

const SAMPLE: &str = include_str!("../../sql/survey/sample.sql");
const CONTRADICTION: &str = include_str!("../../sql/survey/contradiction.sql");

/// The most other paths that are followed from one table.
const MOST_OTHERS: usize = 6;
/// The most partitions that a query locks: the server has room for a limited number of locks.
const MOST_LEAVES: i64 = 1000;
/// The number of rows of a sample that are followed to other tables.
const FOLLOWED: f64 = 500.0;

/// A table whose rows are looked at.
#[derive(Debug, Clone)]
pub struct SampleQuery {
    pub table: usize,
    path: Vec<usize>,
    /// Other paths, whose tenants should be the same.
    pub others: Vec<Vec<usize>>,
    /// The part of the pages that is read.
    pub part: f64,
}

/// An estimated number of rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowEstimate {
    pub rows: i64,
    /// The true number is within this distance in 19 of 20 cases.
    pub error: i64,
    pub examples: String,
}

/// What was found in one table.
#[derive(Debug, Clone, Default)]
pub struct TableSample {
    /// The number of rows that were looked at.
    pub seen: i64,
    /// Whether these are all rows.
    pub is_whole: bool,
    pub tenants: i64,
    /// The most frequent tenants, with their number of rows among those.
    pub most: Vec<(String, i64)>,
    pub without: RowEstimate,
    /// Rows with another tenant by another path: the path's number.
    pub differing: Vec<(usize, RowEstimate)>,
}

impl SampleQuery {
    /// Returns the query, or why the table's rows cannot be looked at.
    pub fn new(
        database: &SurveyedDatabase,
        table: usize,
        path: &[usize],
        others: Vec<Vec<usize>>,
        part: f64,
    ) -> Result<SampleQuery, String> {
        obstacle(database, table, path)?;
        let can_follow = |other: &Vec<usize>| obstacle(database, table, other).is_ok();
        let others = others.into_iter().filter(can_follow).take(MOST_OTHERS).collect();
        Ok(SampleQuery { table, path: path.to_vec(), others, part })
    }

    /// Returns the numbers of all tables that it reads.
    pub fn tables<'a>(&'a self, database: &'a SurveyedDatabase) -> impl Iterator<Item = usize> + 'a {
        let keys = self.path.iter().chain(self.others.iter().flatten());
        std::iter::once(self.table)
            .chain(keys.filter_map(|key| database.keys.get(*key)?.to))
            .collect::<BTreeSet<_>>()
            .into_iter()
    }

    /// Returns every how many-th row of the sample is taken, as following a key reads another table's pages.
    fn step(&self, table: &SurveyTable) -> i64 {
        if self.part >= 1.0 || self.path.is_empty() && self.others.is_empty() {
            return 1;
        }
        ((table.rows as f64 * self.part / FOLLOWED) as i64).max(1)
    }

    pub fn statement(&self, database: &SurveyedDatabase) -> Option<String> {
        let table = database.table(self.table)?;
        let mut columns = BTreeSet::new();
        let (mut joins, tenant) = self.follow(database, &self.path, "m", &mut columns)?;
        let (mut others, mut contradictions) = (String::new(), String::new());
        for (place, other) in self.others.iter().enumerate() {
            let name = format!("o{place}_");
            let (more, tenant) = self.follow(database, other, &name, &mut columns)?;
            joins.push_str(&more);
            others.push_str(&format!(", {tenant} AS {name}"));
            let values = [("text", text(place.to_string())), ("other", word(name))];
            contradictions.push_str(&fill(CONTRADICTION, &values));
        }
        let example = example(table, &mut columns);
        let sample = match self.part < 1.0 {
            true => format!("TABLESAMPLE SYSTEM ({:.7}) REPEATABLE (1)", self.part * 100.0),
            false => String::new(),
        };
        let columns: Vec<String> = columns.iter().map(|name| format!("t.{}", ident(name))).collect();
        let values = [
            ("example", sql(example)),
            ("tenant", sql(tenant)),
            ("others", sql(others)),
            ("columns", sql(columns.join(", "))),
            ("table", sql(table.qualified())),
            ("sample", sql(sample)),
            ("joins", sql(joins)),
            ("step", number(self.step(table))),
            ("contradictions", sql(contradictions)),
        ];
        Some(fill(SAMPLE, &values))
    }

    /// Returns the joins along a path, and the tenant at its end. Adds the columns that the first one needs.
    fn follow(
        &self,
        database: &SurveyedDatabase,
        path: &[usize],
        name: &str,
        columns: &mut BTreeSet<String>,
    ) -> Option<(String, String)> {
        let (mut joins, mut before, mut end) = (String::new(), "r".to_owned(), self.table);
        for (place, key) in path.iter().enumerate() {
            let key = database.keys.get(*key)?;
            let alias = format!("{name}{place}");
            let equal = key.columns.iter().map(|column| {
                let [from, to] = [&column.from, &column.to].map(|name| ident(name));
                format!("{alias}.{to} OPERATOR(pg_catalog.=) {before}.{from}")
            });
            let equal: Vec<String> = equal.collect();
            end = key.to?;
            let to = database.table(end)?.qualified();
            joins.push_str(&format!(" LEFT JOIN {to} AS {alias} ON {}", equal.join(" AND ")));
            if place == 0 {
                columns.extend(key.columns.iter().map(|column| column.from.clone()));
            }
            before = alias;
        }
        let column = &database.table(end)?.column.as_ref()?.name;
        if path.is_empty() {
            columns.insert(column.clone());
        }
        Some((joins, format!("{before}.{}::text COLLATE \"C\"", ident(column))))
    }

    /// Reads the answer. Numbers are scaled to all rows of the table.
    pub fn read(&self, table: &SurveyTable, rows: &Rows) -> TableSample {
        let mut found = TableSample { is_whole: self.part >= 1.0, ..TableSample::default() };
        let count = |row: &[Option<String>], at: usize| whole_number(row.get(at)?.as_deref());
        let seen =
            rows.rows.iter().find(|row| row.first().is_some_and(|what| what.as_deref() == Some("rows")));
        found.seen = seen.and_then(|row| count(row, 2)).unwrap_or(0);
        let scale = match found.is_whole {
            true => 1.0,
            false => table.rows as f64 / found.seen.max(1) as f64,
        };
        for row in &rows.rows {
            let [Some(what), key, ..] = row.as_slice() else { continue };
            let rows = count(row, 2).unwrap_or(0);
            match what.as_str() {
                "tenants" => found.tenants = rows,
                "tenant" => found.most.extend(key.clone().map(|key| (key, rows))),
                "without" => found.without = estimate(row, scale, self.part),
                "other" if rows > 0 => {
                    let path = key.as_deref().and_then(|key| key.parse().ok());
                    let estimate = estimate(row, scale, self.part);
                    found.differing.extend(path.map(|path| (path, estimate)));
                }
                _ => {}
            }
        }
        found
    }
}

fn estimate(row: &[Option<String>], scale: f64, part: f64) -> RowEstimate {
    let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
    let count = whole_number(cell(2)).unwrap_or(0) as f64;
    let squares: f64 = cell(3).and_then(|number| number.parse().ok()).unwrap_or(0.0);
    let unread = (1.0 - part).max(0.0);
    RowEstimate {
        rows: (count * scale).round() as i64,
        error: (1.96 * (squares.max(0.0) * unread).sqrt() * scale).round() as i64,
        examples: cell(4).unwrap_or_default().to_owned(),
    }
}

/// Returns what names a row for a person: its primary key, or its place in the table.
fn example(table: &SurveyTable, columns: &mut BTreeSet<String>) -> String {
    let key = table.unique.iter().find(|key| key.is_primary);
    let key = key.filter(|key| key.columns.iter().all(|column| column.plain == Some(true)));
    let names: Vec<&String> =
        key.iter().flat_map(|key| &key.columns).filter_map(|column| column.name.as_ref()).collect();
    if names.is_empty() {
        return "r.ctid::text".to_owned();
    }
    columns.extend(names.iter().map(|name| (*name).clone()));
    let texts: Vec<String> = names.iter().map(|name| format!("r.{}::text", ident(name))).collect();
    format!("concat_ws(' ', {}) COLLATE \"C\"", texts.join(", "))
}

/// Requires that the rows of a path's tables can be read, and compared with the server's own operators.
fn obstacle(database: &SurveyedDatabase, table: usize, path: &[usize]) -> Result<(), String> {
    let keys: Option<Vec<_>> = path.iter().map(|key| database.keys.get(*key)).collect();
    let keys = keys.unwrap_or_default();
    if let Some(key) = keys.iter().find(|key| !key.is_plain()) {
        return Err(format!(
            "foreign key {} compares values of a type that is not the server's own",
            key.name
        ));
    }
    let numbers = std::iter::once(Some(table)).chain(keys.iter().map(|key| key.to));
    let tables: Option<Vec<&SurveyTable>> = numbers.map(|number| database.table(number?)).collect();
    let Some((tables, end)) = tables.as_ref().and_then(|tables| Some((tables, tables.last()?))) else {
        return Err("its path leads out of the surveyed schemas".to_owned());
    };
    for table in tables {
        let why = match table {
            _ if !table.may_read => "the mover may not read",
            _ if table.is_filtered => "policies hide rows from the mover in",
            _ if table.has_foreign => "rows are on another server in",
            _ if !table.is_free => "a session has locked",
            _ if table.leaves > MOST_LEAVES => "a query would lock too many partitions of",
            _ => continue,
        };
        return Err(format!("{why} {}", table.shown));
    }
    match &end.column {
        Some(column) if column.class != TypeClass::Other && column.may_read => Ok(()),
        _ => Err(format!("the tenant's column of {} cannot be read", end.shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::{RowEstimate, estimate};

    fn row(count: &str, squares: &str) -> Vec<Option<String>> {
        ["without", "", count, squares, "1, 2"].iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    #[test]
    fn what_was_counted_has_no_error() {
        let expected = RowEstimate { rows: 40, error: 0, examples: "1, 2".to_owned() };
        assert_eq!(estimate(&row("40", "100"), 1.0, 1.0), expected);
    }

    #[test]
    fn the_error_grows_with_the_distance_between_pages() {
        let found = estimate(&row("40", "100"), 4.0, 0.25);
        assert_eq!((found.rows, found.error), (160, 68));
        assert_eq!(estimate(&row("40", "0"), 4.0, 0.25).error, 0);
    }
}
