//! Rows of `shardmaster.derived_column`: columns that are filled from the table that a foreign key leads to.

use crate::server::sql::{self, Row};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedColumn {
    /// Its number, which the names of its objects on the shards contain.
    pub id: i64,
    pub keyspace: String,
    /// The name as the catalog keeps it, quoted where needed.
    pub table_name: String,
    pub column: String,
    /// The columns of the foreign key.
    pub through: Vec<String>,
    /// The column of the other table with the value. `None`: it has the same name.
    pub value: Option<String>,
    /// Whether the table had the column before, so that it stays.
    pub was_there: bool,
}

impl DerivedColumn {
    /// Whether it identifies rows, and is not derived from anything.
    pub fn is_identifier(&self) -> bool {
        self.through.is_empty()
    }
}

const QUERY: &str = "SELECT id, keyspace, table_name, column_name, through, value_column, was_there
   FROM shardmaster.derived_column";

fn from_row(row: &Row<'_>) -> DerivedColumn {
    DerivedColumn {
        id: row.value(1),
        keyspace: row.value(2),
        table_name: row.value(3),
        column: row.value(4),
        through: row.value(5),
        value: row.get(6),
        was_there: row.value(7),
    }
}

pub fn of(keyspace: &str, table_name: &str) -> Option<DerivedColumn> {
    let query = format!("{QUERY} WHERE keyspace = $1 AND table_name = $2");
    sql::read_one(&query, &[keyspace.into(), table_name.into()], |row| from_row(&row))
}

/// Returns the derived columns of a keyspace, the oldest first.
pub fn all(keyspace: &str) -> Vec<DerivedColumn> {
    sql::read(&format!("{QUERY} WHERE keyspace = $1 ORDER BY id"), &[keyspace.into()], |row| from_row(&row))
}

/// Inserts a column and returns its number.
pub fn insert(column: &DerivedColumn) -> i64 {
    sql::write_one(
        "INSERT INTO shardmaster.derived_column (keyspace, table_name, column_name, through, value_column, was_there)
         VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
        &[
            column.keyspace.as_str().into(),
            column.table_name.as_str().into(),
            column.column.as_str().into(),
            column.through.clone().into(),
            column.value.clone().into(),
            column.was_there.into(),
        ],
        |row| row.value(1),
    )
    .unwrap_or_default()
}

pub fn delete(id: i64) {
    sql::write("DELETE FROM shardmaster.derived_column WHERE id = $1", &[id.into()]);
}
