//! A column as it was when rows were copied by it: what a progress keeps of it, in short, since
//! each step stores it anew.

use super::shape::{Column, TableShape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownColumn {
    /// Its number, and those of its type's attributes.
    #[serde(rename = "n")]
    pub number: String,
    #[serde(rename = "c")]
    pub name: String,
    #[serde(rename = "t")]
    pub type_name: String,
    /// What else its values mean: collation and what its type is made of.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<String>,
    #[serde(rename = "s", default, skip_serializing_if = "std::ops::Not::not")]
    pub not_null: bool,
    /// Of a shard-by column of an enum: the oid of each label. None: of no enum, or stored by a version that did not.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl KnownColumn {
    /// By which it is known on its side whatever its name is. None is given out twice.
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

/// The columns of a table as they are now.
pub fn of(shape: &TableShape) -> Vec<KnownColumn> {
    shape.columns().iter().map(KnownColumn::from).collect()
}
