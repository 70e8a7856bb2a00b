//! What each table is: decided by its own column, by the paths of its foreign keys, or by its size and its writes.

use super::paths::{FoundPath, PathEdge, search};
use super::tables::{SurveyTable, SurveyedDatabase, TenantColumn};
use super::text::{about, days, size};
use crate::named_enum::named_enum;
use crate::words::counted;
use std::collections::BTreeMap;

/// The greatest reference table: each shard has all of its rows.
const MOST_ROWS: i64 = 100_000;
const MOST_BYTES: i64 = 64 << 20;
/// The most writes of a reference table, of a day.
const MOST_WRITES: i64 = 10_000;

named_enum! {
    /// How the tenant of a table's rows is found.
    pub enum TenantBy {
        Column = "column",
        Through = "through",
        Reference = "reference",
        Global = "global",
        Unclear = "unclear",
    }
}

/// What is decided for one table.
#[derive(Debug, Clone)]
pub struct Tenancy {
    pub by: TenantBy,
    /// Keys that lead to a table with the tenant; empty if the table has it itself.
    pub path: Option<Vec<usize>>,
    /// Other paths.
    pub others: Vec<Vec<usize>>,
    /// Whether its path leads through a table that is unclear, and is clear itself.
    pub is_above_unclear: bool,
    /// Why it is not one of the first two.
    pub reason: Option<String>,
}

impl Tenancy {
    /// Whether its rows belong to tenants, as far as is known.
    pub fn is_of_tenants(&self) -> bool {
        self.path.is_some()
    }
}

/// Makes the table that the tenant's column references a table that holds the tenant, in the referenced column.
/// Returns this table.
pub fn find_root(database: &mut SurveyedDatabase, tenant: &str) -> Option<usize> {
    let mut found: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for key in &database.keys {
        let [column] = key.columns.as_slice() else { continue };
        if let Some(to) = key.to.filter(|to| column.from == tenant && *to != key.from) {
            *found.entry((to, column.to.as_str())).or_default() += 1;
        }
    }
    let ((root, name), _) =
        found.into_iter().max_by_key(|((table, _), count)| (*count, usize::MAX - table))?;
    let name = name.to_owned();
    let like = database.tables.iter().find_map(|table| table.column.clone())?;
    let table = database.tables.get_mut(root)?;
    if table.column.is_none() {
        let may_read = table.may_read;
        table.column =
            Some(TenantColumn { name, is_not_null: true, null_fraction: Some(0.0), may_read, ..like });
    }
    Some(root)
}

/// Returns the foreign keys between surveyed tables, with their numbers.
pub fn edges(database: &SurveyedDatabase) -> (Vec<usize>, Vec<PathEdge>) {
    let known = database.keys.iter().enumerate().filter_map(|(number, key)| {
        let edge = PathEdge { from: key.from, to: key.to?, is_nullable: key.is_nullable() };
        Some((number, edge))
    });
    known.unzip()
}

/// Decides for all tables.
pub fn decide(database: &SurveyedDatabase) -> Vec<Tenancy> {
    let is_keyed: Vec<bool> = database.tables.iter().map(|table| table.column.is_some()).collect();
    let (numbers, edges) = edges(database);
    let found = search(&is_keyed, &edges);
    let keys =
        |path: &[usize]| path.iter().filter_map(|edge| numbers.get(*edge).copied()).collect::<Vec<_>>();
    let of = |(table, found): (&SurveyTable, &FoundPath)| {
        let (by, reason) = match found {
            FoundPath::Own => (TenantBy::Column, None),
            FoundPath::Clear(_) => (TenantBy::Through, None),
            FoundPath::Nothing => without_path(table),
            FoundPath::Several(..) | FoundPath::Nullable(_) | FoundPath::Cycle(..) | FoundPath::Above(..) => {
                (TenantBy::Unclear, unclear(database, found, &keys))
            }
        };
        let others = match found {
            FoundPath::Several(_, others) => others.iter().map(|path| keys(path)).collect(),
            _ => Vec::new(),
        };
        let is_above_unclear = matches!(found, FoundPath::Above(..));
        Tenancy { by, path: found.best().map(&keys), others, is_above_unclear, reason }
    };
    database.tables.iter().zip(&found).map(of).collect()
}

fn unclear(
    database: &SurveyedDatabase,
    found: &FoundPath,
    keys: &impl Fn(&[usize]) -> Vec<usize>,
) -> Option<String> {
    let name = |table: &usize| database.table(*table).map_or("", |table| table.shown.as_str());
    let first = |path: &[usize]| {
        let key = database.keys.get(*keys(path).first()?)?;
        let to = key.to.map_or(key.to_name.as_str(), |to| name(&to));
        Some(format!("{} to {to}", key.columns_text()))
    };
    Some(match found {
        FoundPath::Several(best, others) => {
            let all: Vec<String> =
                std::iter::once(best).chain(others).filter_map(|path| first(path)).collect();
            format!("{} keys lead to a tenant: {}", all.len(), all.join(", "))
        }
        FoundPath::Nullable(path) => format!("the only key to a tenant may be NULL: {}", first(path)?),
        FoundPath::Cycle(_, tables) => {
            let tables: Vec<&str> = tables.iter().map(name).collect();
            format!("its keys lead back to it, through {}", tables.join(", "))
        }
        FoundPath::Above(_, table) => format!("its path leads through {}, which is unclear", name(table)),
        FoundPath::Own | FoundPath::Nothing | FoundPath::Clear(_) => return None,
    })
}

/// Decides for a table from which no key leads to a tenant.
fn without_path(table: &SurveyTable) -> (TenantBy, Option<String>) {
    if let Some(pair) = table.objects("pair").next() {
        let other = pair.of.as_deref().unwrap_or_default();
        let reason =
            format!("columns {} and {other} name what a row belongs to, without a foreign key", pair.name);
        return (TenantBy::Unclear, Some(reason));
    }
    match too_much(table) {
        Some(why) => (TenantBy::Global, Some(format!("no key leads to a tenant, and it is {why}"))),
        None => (TenantBy::Reference, Some("small, seldom written, and no key leads to a tenant".to_owned())),
    }
}

/// Returns why a table cannot be a reference table, if so.
pub fn too_much(table: &SurveyTable) -> Option<String> {
    let writes = writes_a_day(table);
    match table {
        _ if table.is_partitioned => Some("partitioned".to_owned()),
        _ if table.inherits => Some("part of an inheritance tree".to_owned()),
        _ if table.rows > MOST_ROWS || table.bytes > MOST_BYTES => {
            Some(format!("large: {}, {}", about(table.rows, "row", "rows"), size(table.bytes)))
        }
        _ if writes > MOST_WRITES => Some(format!("busy: {} a day", about(writes, "write", "writes"))),
        _ => None,
    }
}

/// Estimates writes by what the server has counted. The rows that are there were written once, and do not count.
fn writes_a_day(table: &SurveyTable) -> i64 {
    let writes = table.changed.saturating_add((table.inserted - table.rows).max(0));
    (writes as f64 / days(table.counted_for)) as i64
}

/// Returns a path for people: each key with the table that it leads to, and the column of the last one.
pub fn path_text(database: &SurveyedDatabase, from: usize, path: &[usize]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut last = from;
    for key in path.iter().filter_map(|key| database.keys.get(*key)) {
        let to = key.to.and_then(|to| database.table(to));
        let name = to.map_or(key.to_name.as_str(), |table| table.shown.as_str());
        texts.push(format!("{} -> {name}", key.columns_text()));
        last = key.to.unwrap_or(last);
    }
    texts.extend(
        database.table(last).and_then(|table| table.column.as_ref()).map(|column| column.name.clone()),
    );
    texts
}

/// Returns how many tables there are of each kind, in words.
pub fn counts(all: &[Tenancy]) -> String {
    let count = |by: TenantBy| all.iter().filter(|one| one.by == by).count();
    let kinds =
        [TenantBy::Column, TenantBy::Through, TenantBy::Reference, TenantBy::Global, TenantBy::Unclear];
    let words = kinds.map(|by| format!("{} {}", count(by), by.as_str()));
    format!("{}: {}", counted(all.len() as i64, "table", "tables"), words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{TenantBy, decide, find_root, path_text};
    use crate::survey::tables::{
        KeyColumn, SurveyKey, SurveyTable, SurveyedDatabase, TableObject, TenantColumn, TypeClass,
    };

    fn table(name: &str, tenant: Option<&str>) -> SurveyTable {
        let column = tenant.map(|name| TenantColumn {
            name: name.to_owned(),
            type_name: "uuid".to_owned(),
            base: "uuid".to_owned(),
            class: TypeClass::Builtin,
            is_not_null: true,
            null_fraction: None,
            may_read: true,
        });
        SurveyTable {
            name: name.to_owned(),
            shown: name.to_owned(),
            counted_for: 86_400,
            column,
            ..SurveyTable::default()
        }
    }

    fn key(from: usize, to: usize, columns: [&str; 2], nullable: bool) -> SurveyKey {
        let [own, other] = columns.map(str::to_owned);
        SurveyKey {
            name: format!("{from}_{to}"),
            from,
            to: Some(to),
            to_name: String::new(),
            columns: vec![KeyColumn { from: own, to: other, nullable, plain: true }],
        }
    }

    #[test]
    fn each_table_is_one_of_five() {
        let mut database = SurveyedDatabase {
            tables: vec![
                table("tenants", None),
                table("orders", Some("tenant")),
                table("items", None),
                table("countries", None),
                SurveyTable { rows: 1_000_000, ..table("users", None) },
                SurveyTable { changed: 20_000, ..table("jobs", None) },
                table("notes", None),
            ],
            keys: vec![
                key(1, 0, ["tenant", "id"], false),
                key(2, 1, ["order", "id"], false),
                key(1, 4, ["user", "id"], false),
            ],
            ..SurveyedDatabase::default()
        };
        let pair = TableObject {
            kind: "pair".to_owned(),
            name: "of_type".to_owned(),
            of: Some("of_id".to_owned()),
            more: None,
        };
        database.tables[6].objects.push(pair);
        assert_eq!(find_root(&mut database, "tenant"), Some(0));
        let decided = decide(&database);
        let kinds: Vec<TenantBy> = decided.iter().map(|one| one.by).collect();
        use TenantBy::{Column, Global, Reference, Through, Unclear};
        assert_eq!(kinds, [Column, Column, Through, Reference, Global, Global, Unclear]);
        let path = decided[2].path.clone().unwrap();
        assert_eq!(path_text(&database, 2, &path), ["order -> orders", "tenant"]);
        assert_eq!(path_text(&database, 0, &[]), ["id"]);
    }

    #[test]
    fn a_database_without_keys_has_no_table_of_tenants() {
        let mut database =
            SurveyedDatabase { tables: vec![table("orders", Some("tenant"))], ..SurveyedDatabase::default() };
        assert_eq!(find_root(&mut database, "tenant"), None);
    }
}
