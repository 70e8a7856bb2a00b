//! A key of a table that holds over all of its rows.

use crate::agent::deparsed::canonical;
use crate::agent::{catalogs, error};
use crate::remote::{Connection, RemoteError};
use serde::{Deserialize, Deserializer};

const UNIQUE: &str = include_str!("../../../../../sql/check/unique.sql");

/// The name of the finding.
pub const NAME: &str = "unique keys without the shard-by column";

/// A part of what it compares rows by.
#[derive(Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct IndexPart {
    /// SQL over a row.
    pub text: String,
    /// The column's plain name. `None` for an expression.
    pub column: Option<String>,
    #[serde(rename = "type")]
    pub type_name: String,
    /// The operator by which two rows are equal, or exclude each other.
    pub operator: String,
    pub collation: Option<String>,
    pub is_boolean: bool,
    pub is_uuid: bool,
    pub default: Option<String>,
    /// Columns whose values are its values, by foreign keys.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub refers: Vec<Referred>,
    /// Columns of its table that it is computed from.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub bases: Vec<String>,
}

#[derive(Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Referred {
    /// The name, qualified and quoted.
    pub table: String,
    /// The column's plain name.
    pub column: String,
}

fn none_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default())
}

#[derive(Debug)]
pub struct UniqueIndex {
    pub position: usize,
    /// The name, qualified and quoted.
    pub table: String,
    name: String,
    pub predicate: Option<String>,
    pub parts: Vec<IndexPart>,
    /// It compares by nothing that differs between rows.
    pub is_constant: bool,
    /// It belongs to one partition, and not to the table.
    pub is_of_partition: bool,
    pub are_nulls_equal: bool,
}

pub fn of(session: &mut Connection, lists: &[String; 3]) -> error::Result<Vec<UniqueIndex>> {
    let rows = catalogs::ask(session, UNIQUE, &catalogs::given(lists))?;
    let read = |row: &Vec<Option<String>>| -> Option<UniqueIndex> {
        let [position, table, name, predicate, parts, is_constant, is_of_partition, are_nulls_equal] =
            row.as_slice()
        else {
            return None;
        };
        let is = |cell: &Option<String>| cell.as_deref() == Some("t");
        Some(UniqueIndex {
            position: position.as_ref()?.parse().ok()?,
            table: table.clone()?,
            name: name.clone()?,
            predicate: predicate.clone(),
            parts: serde_json::from_str(parts.as_ref()?).ok()?,
            is_constant: is(is_constant),
            is_of_partition: is(is_of_partition),
            are_nulls_equal: is(are_nulls_equal),
        })
    };
    let indexes: Option<Vec<UniqueIndex>> = rows.rows.iter().map(read).collect();
    Ok(indexes.ok_or_else(|| RemoteError::unreadable(session.shard(), "what its unique indexes are like"))?)
}

impl UniqueIndex {
    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.text.as_str()).collect();
        let of = self.predicate.as_ref().map_or_else(String::new, |predicate| format!(" WHERE {predicate}"));
        format!("{}: index {} ({}){of}", self.table, self.name, parts.join(", "))
    }

    /// Whether it compares the same values of the same rows.
    pub fn is_like(&self, other: &UniqueIndex) -> bool {
        let texts =
            |index: &UniqueIndex| index.parts.iter().map(|part| canonical(&part.text)).collect::<Vec<_>>();
        let predicate = |index: &UniqueIndex| index.predicate.as_deref().map(canonical);
        self.position == other.position
            && self.is_of_partition == other.is_of_partition
            && predicate(self) == predicate(other)
            && texts(self) == texts(other)
    }
}

#[cfg(test)]
impl UniqueIndex {
    pub fn of_parts(parts: Vec<IndexPart>) -> UniqueIndex {
        UniqueIndex {
            position: 0,
            table: "public.items".into(),
            name: "items_pkey".into(),
            predicate: None,
            parts,
            is_constant: false,
            is_of_partition: false,
            are_nulls_equal: false,
        }
    }
}
