//! What a shard says of a table whose column is to be derived, and of the table that its foreign key leads to.

use super::error;
use crate::agent::error::Result;
use crate::catalog::derived_column::DerivedColumn;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::TableName;
use crate::error::Failure;
use crate::remote::Connection;
use crate::remote::quote::{ident, qualified, qualified_as_needed, text_array};
use crate::server::txn::in_one;
use serde::Deserialize;

const LOOK: &str = include_str!("../../sql/derive/look.sql");

/// The type of an identifier.
const IDENTIFIER_TYPE: &str = "uuid";

/// A pair of columns of the foreign key.
#[derive(Debug, Clone, Deserialize)]
pub struct KeyPair {
    pub from: String,
    pub to: String,
    pub nullable: bool,
    /// The operator that compares them, of the other table's column with this table's.
    pub operator: String,
}

/// A unique index over columns that refuse NULL.
#[derive(Debug, Clone, Deserialize)]
pub struct UniqueKey {
    pub columns: Vec<String>,
    /// The index, if it can become that of a primary key.
    pub index: Option<String>,
}

/// A table on a shard, and the table that the foreign key leads to.
#[derive(Debug, Clone, Deserialize)]
pub struct DerivedShape {
    pub oid: String,
    kind: String,
    pub owner: String,
    /// Whether the mover may do what the owner may.
    may_own: bool,
    inherits: bool,
    is_partition: bool,
    /// Whether rows are in foreign tables.
    has_foreign: bool,
    /// Whether policies hide rows of one of the tables from its owner.
    is_forced: bool,
    /// The type that the column has. `None`: it does not exist.
    pub has_type: Option<String>,
    is_generated: bool,
    /// Whether the key was checked for all rows.
    is_valid: bool,
    /// Whether a row may refer to one that comes later in its transaction.
    pub is_deferrable: bool,
    /// The number of keys with these columns.
    keys: i64,
    parent_schema: Option<String>,
    parent_name: Option<String>,
    parent_kind: Option<String>,
    parent_owner: Option<String>,
    may_own_parent: bool,
    /// Whether the table's owner may read and lock rows of the other table.
    owner_may_read: bool,
    pub pairs: Vec<KeyPair>,
    value_type: Option<String>,
    is_value_not_null: bool,
    pub has_primary_key: bool,
    /// The columns of partition keys, of all levels. `None`: an expression.
    partition_columns: Vec<Option<String>>,
    /// Those that may be NULL.
    nullable_columns: Vec<String>,
    pub unique_key: Option<UniqueKey>,
    collation: Option<String>,
    #[serde(skip)]
    names: Names,
}

/// The names that the column was given with.
#[derive(Debug, Clone, Default)]
struct Names {
    schema: String,
    table: String,
    column: String,
    value: String,
    is_identifier: bool,
}

impl DerivedShape {
    /// Whether the column is to identify rows, rather than to be derived.
    pub fn is_identifier(&self) -> bool {
        self.names.is_identifier
    }

    /// Returns the columns that a primary key with the column needs beside it.
    pub fn partition_columns(&self) -> impl Iterator<Item = &str> {
        self.partition_columns.iter().filter_map(Option::as_deref)
    }

    pub fn is_partitioned(&self) -> bool {
        self.kind == "p"
    }

    pub fn schema(&self) -> &str {
        &self.names.schema
    }

    pub fn column(&self) -> &str {
        &self.names.column
    }

    pub fn value(&self) -> &str {
        &self.names.value
    }

    /// Returns the column's definition.
    pub fn definition(&self) -> String {
        if self.is_identifier() {
            return IDENTIFIER_TYPE.to_owned();
        }
        let collation = self.collation.as_ref().map_or(String::new(), |name| format!(" COLLATE {name}"));
        format!("{}{collation}", self.value_type.as_deref().unwrap_or_default())
    }

    /// Returns ONLY if the other table's rows are not in partitions: a foreign key does not lead to heirs.
    pub fn only(&self) -> &'static str {
        if self.parent_kind.as_deref() == Some("p") { "" } else { "ONLY" }
    }

    pub fn table(&self) -> String {
        qualified(&self.names.schema, &self.names.table)
    }

    pub fn parent_table(&self) -> String {
        let [schema, name] =
            [&self.parent_schema, &self.parent_name].map(|name| name.as_deref().unwrap_or_default());
        qualified(schema, name)
    }

    /// Returns the name of the other table, for people.
    pub fn parent_shown(&self) -> String {
        let [schema, name] =
            [&self.parent_schema, &self.parent_name].map(|name| name.as_deref().unwrap_or_default());
        qualified_as_needed(schema, name)
    }

    /// Returns the name of the table, for people.
    pub fn shown(&self) -> String {
        qualified_as_needed(&self.names.schema, &self.names.table)
    }

    /// Whether the key leads to this table.
    pub fn leads_to(&self, schema: &str, name: &str) -> bool {
        self.parent_schema.as_deref() == Some(schema) && self.parent_name.as_deref() == Some(name)
    }

    /// Returns the condition that a row of the other table is the one that a row leads to, given the names of both.
    pub fn joined(&self, parent: &str, child: &str) -> String {
        let equal = |pair: &KeyPair| {
            format!("{parent}.{} {} {child}.{}", ident(&pair.to), pair.operator, ident(&pair.from))
        };
        self.pairs.iter().map(equal).collect::<Vec<_>>().join(" AND ")
    }

    /// Returns the condition that two rows of the other table have one key.
    pub fn same_key(&self, one: &str, other: &str) -> String {
        same(one, other, self.pairs.iter().map(|pair| pair.to.as_str()))
    }

    /// Returns the condition that a row leads where it did, and has the value that it had.
    pub fn is_same(&self, one: &str, other: &str) -> String {
        same(one, other, self.pairs.iter().map(|pair| pair.from.as_str()).chain([self.column()]))
    }

    /// Returns the condition that a row of the other table has the value that it had.
    pub fn is_same_value(&self, one: &str, other: &str) -> String {
        same(one, other, std::iter::once(self.value()))
    }

    /// Returns the condition that a row refers to nothing.
    pub fn is_unset(&self, child: &str) -> String {
        let unset = |pair: &KeyPair| format!("{child}.{} IS NULL", ident(&pair.from));
        self.pairs.iter().map(unset).collect::<Vec<_>>().join(" OR ")
    }

    /// Whether every row has a value, so that the column can refuse NULL.
    pub fn is_always_set(&self) -> bool {
        if self.is_identifier() {
            return true;
        }
        let is_set = self.pairs.iter().all(|pair| !pair.nullable);
        is_set && self.is_value_not_null && self.is_valid && !self.is_deferrable
    }
}

/// Compares the bytes of columns: an operator of a type could be one that somebody has made.
fn same<'a>(one: &str, other: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let columns: Vec<String> = columns.map(ident).collect();
    let row = |of: &str| columns.iter().map(|column| format!("{of}.{column}")).collect::<Vec<_>>().join(", ");
    format!("pg_catalog.record_image_eq(ROW({}), ROW({}))", row(one), row(other))
}

/// Asks a shard. Returns None if it does not have the table. It is an error if the column cannot be derived there.
pub fn look(session: &mut Connection, shard: &Shard, column: &DerivedColumn) -> Result<Option<DerivedShape>> {
    // The server reads the name, which needs a transaction.
    let (schema, table) = in_one(|| TableName::of(&column.table_name)).on(&shard.namespace);
    let through = text_array(&column.through);
    let answer = session.query(
        LOOK,
        &[Some(&schema), Some(&table), Some(&column.column), Some(&through), column.value.as_deref()],
    )?;
    let Some(json) = answer.scalar() else { return Ok(None) };
    let mut shape: DerivedShape =
        serde_json::from_str(json).map_err(|error| error::odd_answer(&shard.shard_key, &error))?;
    let value = column.value.clone().unwrap_or_else(|| column.column.clone());
    let is_identifier = column.is_identifier();
    shape.names = Names { schema, table, column: column.column.clone(), value, is_identifier };
    let found = of_table(&shape, column)
        .or_else(|| if is_identifier { of_identifier(&shape, column) } else { of_value(&shape, column) });
    match found {
        Some(failure) => Err(error::on(&shard.shard_key, &column.table_name, failure).into()),
        None => Ok(Some(shape)),
    }
}

/// Returns the names of the functions that fill columns of other tables from this one.
pub fn filled_by(session: &mut Connection, shape: &DerivedShape) -> Result<Vec<String>> {
    let query = "SELECT DISTINCT substring(t.tgname FROM '^zzz_(shardmaster_derive_[0-9a-f]{16})_hold$')
                   FROM pg_trigger t JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attname = $2
                  WHERE t.tgrelid = to_regclass($1) AND t.tgname ~ '^zzz_shardmaster_derive_[0-9a-f]{16}_hold$'
                    AND EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                                   AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid AND d.refobjsubid = a.attnum)";
    let rows = session.query(query, &[Some(&shape.table()), Some(shape.column())])?;
    Ok(rows.rows.into_iter().flatten().flatten().collect())
}

/// Returns why the table cannot have the column there, and what helps.
fn of_table(shape: &DerivedShape, column: &DerivedColumn) -> Option<Failure> {
    if !matches!(shape.kind.as_str(), "r" | "p") {
        Some(error::no_ordinary_table())
    } else if shape.inherits || shape.is_partition {
        Some(error::inherits())
    } else if shape.has_foreign {
        Some(error::foreign())
    } else if !shape.may_own {
        Some(error::not_owner(&shape.owner))
    } else if shape.is_generated {
        Some(error::generated(&column.column))
    } else if shape.is_forced {
        Some(error::forced())
    } else {
        None
    }
}

/// Returns why the table cannot have an identifier.
fn of_identifier(shape: &DerivedShape, column: &DerivedColumn) -> Option<Failure> {
    if shape.has_primary_key || shape.unique_key.is_some() {
        return None;
    }
    if shape.partition_columns.iter().any(Option::is_none) {
        return Some(error::partitioned_by_expression());
    }
    if let Some(nullable) = shape.nullable_columns.first() {
        return Some(error::nullable_partition_key(nullable, &shape.shown()));
    }
    let has = shape.has_type.as_ref().filter(|has| *has != IDENTIFIER_TYPE)?;
    Some(error::other_type(&column.column, has, IDENTIFIER_TYPE))
}

/// Returns why the column cannot be derived.
fn of_value(shape: &DerivedShape, column: &DerivedColumn) -> Option<Failure> {
    let parent = shape.parent_shown();
    if shape.keys != 1 {
        Some(error::keys(&column.through, shape.keys))
    } else if !shape.may_own_parent {
        Some(error::not_owner(shape.parent_owner.as_deref().unwrap_or_default()))
    } else if !shape.owner_may_read {
        Some(error::may_not_read(&shape.owner, &parent))
    } else {
        match (&shape.value_type, &shape.has_type) {
            (None, _) => Some(error::no_value(&parent, shape.value())),
            (Some(wanted), Some(has)) if wanted != has => {
                Some(error::other_type(&column.column, has, wanted))
            }
            _ => None,
        }
    }
}
