//! A column as it was when rows were copied by it. A progress keeps this short form, since each step stores it anew.

use super::shape::{Column, TableShape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownColumn {
    /// The column's number, and those of its type's attributes.
    #[serde(rename = "n")]
    pub number: String,
    #[serde(rename = "c")]
    pub name: String,
    #[serde(rename = "t")]
    pub type_name: String,
    /// What else determines the meaning of its values: the collation and what its type is made of.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<String>,
    #[serde(rename = "s", default, skip_serializing_if = "std::ops::Not::not")]
    pub not_null: bool,
    /// The oid of each label, for a shard-by column of an enum. `None` for other types, or if an earlier version
    /// stored the progress.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl KnownColumn {
    /// Returns the number that identifies the column on its side, whatever its name is. A number is never given to a
    /// second column.
    pub fn attribute(&self) -> &str {
        self.number.split(' ').next().unwrap_or_default()
    }
}

impl From<&Column> for KnownColumn {
    fn from(column: &Column) -> KnownColumn {
        let facts = [&column.collation, &column.equality, &column.signature];
        let has_more = facts.iter().any(|fact| fact.is_some());
        KnownColumn {
            number: column.number.clone(),
            name: column.name.clone(),
            type_name: column.type_name.clone(),
            meaning: has_more.then(|| format!("{facts:?}")),
            generated: column.generated.clone(),
            not_null: column.not_null,
            labels: column.labels.clone(),
        }
    }
}

/// Returns the columns of a table as they are now.
pub fn of(shape: &TableShape) -> Vec<KnownColumn> {
    shape.columns().iter().map(KnownColumn::from).collect()
}
