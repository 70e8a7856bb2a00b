//! What is read of a database: a few queries over its catalogs and statistics, each for all tables at once.

use super::text::sql_name;
use crate::agent::catalogs::given;
use crate::remote::quote::{ident_as_needed, qualified, qualified_as_needed, text_array};
use crate::remote::{Connection, RemoteError};
use serde::Deserialize;
use std::collections::BTreeMap;

const TABLES: &str = include_str!("../../sql/survey/tables.sql");
const COLUMNS: &str = include_str!("../../sql/survey/columns.sql");
const KEYS: &str = include_str!("../../sql/survey/keys.sql");
const UNIQUE: &str = include_str!("../../sql/survey/unique.sql");
const OBJECTS: &str = include_str!("../../sql/survey/objects.sql");
const WHOLE: &str = include_str!("../../sql/survey/whole.sql");

/// A table with all of its partitions.
#[derive(Debug, Clone, Default)]
pub struct SurveyTable {
    pub oid: String,
    pub schema: String,
    pub name: String,
    /// The name as an argument of shard_table_add().
    pub shown: String,
    pub is_partitioned: bool,
    pub is_unlogged: bool,
    pub rows: i64,
    pub bytes: i64,
    pub pages: i64,
    pub leaves: i64,
    /// Whether the statistics know its rows.
    pub is_analyzed: bool,
    /// Whether its size could be read: no session held its lock.
    pub is_free: bool,
    pub may_read: bool,
    /// Whether policies hide rows from the mover.
    pub is_filtered: bool,
    pub has_foreign: bool,
    pub inherits: bool,
    pub inserted: i64,
    /// The number of rows that were updated or deleted.
    pub changed: i64,
    /// How long the server has counted writes, in seconds.
    pub counted_for: i64,
    pub column: Option<TenantColumn>,
    pub unique: Vec<SurveyUnique>,
    pub objects: Vec<TableObject>,
}

impl SurveyTable {
    /// Returns the name for a statement on the shard.
    pub fn qualified(&self) -> String {
        qualified(&self.schema, &self.name)
    }

    /// Returns the name for a person who writes a statement on the shard.
    pub fn written(&self) -> String {
        format!("{}.{}", sql_name(&self.schema), sql_name(&self.name))
    }

    pub fn has_primary_key(&self) -> bool {
        self.unique.iter().any(|key| key.is_primary)
    }

    pub fn objects<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a TableObject> {
        self.objects.iter().filter(move |object| object.kind == kind)
    }
}

/// The column of a table that holds the tenant.
#[derive(Debug, Clone)]
pub struct TenantColumn {
    pub name: String,
    /// The type as a column definition has it.
    pub type_name: String,
    /// The type without a length, and below a domain.
    pub base: String,
    pub class: TypeClass,
    pub is_not_null: bool,
    /// The fraction of rows without a value, by the statistics.
    pub null_fraction: Option<f64>,
    pub may_read: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeClass {
    Builtin,
    Enum,
    Other,
}

/// A primary key or a unique index.
#[derive(Debug, Clone)]
pub struct SurveyUnique {
    pub index: String,
    pub is_primary: bool,
    pub is_partial: bool,
    pub columns: Vec<UniqueColumn>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct UniqueColumn {
    /// `None` for an expression.
    pub name: Option<String>,
    /// Whether its type is one of the server's own.
    pub plain: Option<bool>,
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    pub source: ValueSource,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueSource {
    /// Random identifiers: two shards do not make the same.
    Random,
    Sequence,
    Default,
    Expression,
    Client,
}

/// A foreign key of a surveyed table.
#[derive(Debug, Clone)]
pub struct SurveyKey {
    pub name: String,
    pub from: usize,
    /// The referenced table. `None`: it is not surveyed.
    pub to: Option<usize>,
    /// The name of the referenced table.
    pub to_name: String,
    pub columns: Vec<KeyColumn>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct KeyColumn {
    pub from: String,
    pub to: String,
    pub nullable: bool,
    /// Whether the operator and the types are the server's own.
    pub plain: bool,
}

impl SurveyKey {
    pub fn is_nullable(&self) -> bool {
        self.columns.iter().any(|column| column.nullable)
    }

    pub fn is_plain(&self) -> bool {
        self.columns.iter().all(|column| column.plain)
    }

    /// Returns the columns of the referencing table, for people.
    pub fn columns_text(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| ident_as_needed(&column.from)).collect();
        if names.len() == 1 { names.concat() } else { format!("({})", names.join(", ")) }
    }
}

/// Something that belongs to a table: a word for what it is, its name, and more about it.
#[derive(Debug, Clone)]
pub struct TableObject {
    pub kind: String,
    pub name: String,
    pub of: Option<String>,
    pub more: Option<String>,
}

/// All that is read of a database.
#[derive(Debug, Default)]
pub struct SurveyedDatabase {
    pub tables: Vec<SurveyTable>,
    pub keys: Vec<SurveyKey>,
    /// What belongs to no table.
    pub whole: Vec<TableObject>,
}

impl SurveyedDatabase {
    /// Returns the oids of the tables, as an array.
    pub fn oids(&self) -> String {
        text_array(&self.tables.iter().map(|table| table.oid.clone()).collect::<Vec<_>>())
    }

    /// Returns the oids of the tables that no session holds locked.
    fn free(&self) -> String {
        let free = self.tables.iter().filter(|table| table.is_free);
        text_array(&free.map(|table| table.oid.clone()).collect::<Vec<_>>())
    }

    pub fn table(&self, number: usize) -> Option<&SurveyTable> {
        self.tables.get(number)
    }

    /// Returns the numbers of the tables by their oids.
    pub fn positions(&self) -> BTreeMap<String, usize> {
        self.tables.iter().enumerate().map(|(number, table)| (table.oid.clone(), number)).collect()
    }
}

type SurveyCells = [Option<String>];

fn text(row: &SurveyCells, at: usize) -> Option<String> {
    row.get(at).cloned().flatten()
}

fn is(row: &SurveyCells, at: usize) -> bool {
    text(row, at).as_deref() == Some("t")
}

/// A number that a shard may also send as something else.
pub fn whole_number(text: Option<&str>) -> Option<i64> {
    text?.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number as i64)
}

/// Reads the tables of some schemas, or of all but those of others.
pub fn read(
    session: &mut Connection,
    namespace: &str,
    schemas: Option<&[String]>,
    others: &[String],
) -> Result<SurveyedDatabase, RemoteError> {
    let (schemas, others) = (schemas.map(text_array), text_array(others));
    let mut ask = |estimates: &str| {
        session.query(TABLES, &[schemas.as_deref(), Some(others.as_str()), Some(estimates)])
    };
    let rows = match ask("false") {
        // A session has taken a lock meanwhile: the sizes are estimated.
        Err(error) if error.is_lock_timeout() => ask("true")?,
        answer => answer?,
    };
    let tables = rows.rows.iter().map(|row| table(row, namespace)).collect::<Option<Vec<_>>>();
    let tables =
        tables.ok_or_else(|| RemoteError::unreadable(session.shard(), "what its tables are like"))?;
    let mut found = SurveyedDatabase { tables, ..SurveyedDatabase::default() };
    read_keys(session, &mut found)?;
    Ok(found)
}

fn table(row: &SurveyCells, namespace: &str) -> Option<SurveyTable> {
    let number = |at: usize| whole_number(row.get(at)?.as_deref());
    let (schema, name) = (text(row, 1)?, text(row, 2)?);
    Some(SurveyTable {
        oid: text(row, 0)?,
        shown: if schema == namespace { ident_as_needed(&name) } else { qualified_as_needed(&schema, &name) },
        schema,
        name,
        is_partitioned: text(row, 4)? == "p",
        is_unlogged: text(row, 5)? == "u",
        rows: number(6).unwrap_or(0),
        bytes: number(7).unwrap_or(0),
        pages: number(8).unwrap_or(0),
        leaves: number(9)?,
        is_analyzed: is(row, 10),
        is_free: is(row, 11),
        may_read: is(row, 12),
        is_filtered: is(row, 13),
        has_foreign: is(row, 14),
        inherits: is(row, 15),
        inserted: number(16).unwrap_or(0),
        changed: number(17).unwrap_or(0),
        counted_for: number(18)?,
        ..SurveyTable::default()
    })
}

fn read_keys(session: &mut Connection, found: &mut SurveyedDatabase) -> Result<(), RemoteError> {
    let positions = found.positions();
    let rows = session.query(KEYS, &given(&[found.oids()]))?;
    let key = |row: &SurveyCells| {
        Some(SurveyKey {
            name: text(row, 1)?,
            from: *positions.get(row.get(2)?.as_deref()?)?,
            to: positions.get(row.get(3)?.as_deref()?).copied(),
            to_name: text(row, 4)?,
            columns: serde_json::from_str(row.get(5)?.as_deref()?).ok()?,
        })
    };
    let keys = rows.rows.iter().map(|row| key(row)).collect::<Option<Vec<_>>>();
    found.keys =
        keys.ok_or_else(|| RemoteError::unreadable(session.shard(), "what its foreign keys are like"))?;
    Ok(())
}

/// Reads the column that holds the tenant, of each table that has one.
pub fn read_columns(
    session: &mut Connection,
    found: &mut SurveyedDatabase,
    tenant: &str,
) -> Result<(), RemoteError> {
    let positions = found.positions();
    let rows = session.query(COLUMNS, &[Some(found.oids().as_str()), Some(tenant)])?;
    for row in &rows.rows {
        let Some((number, column)) = column(row, tenant, &positions) else {
            return Err(RemoteError::unreadable(session.shard(), "what its columns are like"));
        };
        if let Some(table) = found.tables.get_mut(number) {
            table.column = Some(column);
        }
    }
    Ok(())
}

fn column(
    row: &SurveyCells,
    tenant: &str,
    positions: &BTreeMap<String, usize>,
) -> Option<(usize, TenantColumn)> {
    let column = TenantColumn {
        name: tenant.to_owned(),
        type_name: text(row, 1)?,
        base: text(row, 2)?,
        class: match text(row, 3)?.as_str() {
            "builtin" => TypeClass::Builtin,
            "enum" => TypeClass::Enum,
            _ => TypeClass::Other,
        },
        is_not_null: is(row, 4),
        null_fraction: text(row, 5).and_then(|number| number.parse().ok()),
        may_read: is(row, 8),
    };
    Some((*positions.get(row.first()?.as_deref()?)?, column))
}

/// Reads unique keys, and what else belongs to the tables or to the database.
pub fn read_objects(session: &mut Connection, found: &mut SurveyedDatabase) -> Result<(), RemoteError> {
    let (positions, oids, free) = (found.positions(), found.oids(), found.free());
    let ask = |session: &mut Connection, query: &str| match session.query(query, &given(&[&oids, &free])) {
        // A session has taken a lock meanwhile: what would wait for it is left out.
        Err(error) if error.is_lock_timeout() => session.query(query, &given(&[&*oids, "{}"])),
        answer => answer,
    };
    let unreadable = |session: &Connection| RemoteError::unreadable(session.shard(), "what its tables have");
    for row in ask(session, UNIQUE)?.rows {
        let (number, key) = unique(&row, &positions).ok_or_else(|| unreadable(session))?;
        found.tables[number].unique.push(key);
    }
    for row in ask(session, OBJECTS)?.rows {
        let number = row.first().and_then(|oid| positions.get(oid.as_deref()?)).copied();
        let (number, object) =
            number.zip(object(row.get(1..).unwrap_or_default())).ok_or_else(|| unreadable(session))?;
        found.tables[number].objects.push(object);
    }
    let mut schemas: Vec<String> = found.tables.iter().map(|table| table.schema.clone()).collect();
    schemas.dedup();
    let rows = session.query(WHOLE, &given(&[text_array(&schemas)]))?.rows;
    found.whole = rows.iter().filter_map(|row| object(row)).collect();
    Ok(())
}

fn unique(row: &SurveyCells, positions: &BTreeMap<String, usize>) -> Option<(usize, SurveyUnique)> {
    let key = SurveyUnique {
        index: text(row, 2)?,
        is_primary: is(row, 3),
        is_partial: is(row, 4),
        columns: serde_json::from_str(row.get(5)?.as_deref()?).ok()?,
    };
    Some((*positions.get(row.first()?.as_deref()?)?, key))
}

fn object(row: &[Option<String>]) -> Option<TableObject> {
    let cell = |at: usize| row.get(at).cloned().flatten();
    Some(TableObject { kind: cell(0)?, name: cell(1)?, of: cell(2), more: cell(3) })
}
