//! A table on the wrong shard and on the right one. A table whose values may not be copied unchanged is refused by
//! name.

use crate::agent::shape::{Column, TableShape};
use crate::error::Failure;
use crate::misplaced::error;
use crate::misplaced::facts::MisplacedFacts;
use crate::remote::quote::{array_literal, ident, idents};
use std::collections::BTreeSet;

pub struct MovedTable {
    /// The keyspace's name of it.
    pub name: String,
    /// The names, qualified and quoted, at the wrong shard and at the right one; the latter is empty if nothing is
    /// moved there.
    pub here: String,
    pub there: String,
    /// The table where rows arrive.
    pub stage: String,
    /// The condition that rows `s` and `t` of the right shard have the same primary key.
    pub same_key: String,
    /// Keys for which the shard-by column's type has no value: they have no rows.
    pub strangers: BTreeSet<String>,
    shard_by: Column,
    columns: Vec<String>,
    key: Vec<String>,
}

/// One shard, for messages.
pub struct MoveSide<'a> {
    pub shard: &'a str,
    pub facts: &'a MisplacedFacts,
}

impl MoveSide<'_> {
    fn refuse(&self, position: usize, what: impl AsRef<str>) -> Failure {
        error::unfit_table(self.shard, &self.facts.names[position], what.as_ref())
    }

    fn ordinary(&self, position: usize) -> Result<&TableShape, Failure> {
        let shape = &self.facts.shapes[position];
        if shape.oid.is_none() {
            return Err(self.refuse(position, "does not exist"));
        }
        if !matches!(shape.kind.as_deref(), Some("r" | "p")) || !shape.is_ordinary() {
            return Err(self.refuse(position, "is not a table, or has partitions that are not tables"));
        }
        match &shape.heir {
            Some(heir) => Err(self.refuse(position, format!("has rows of {heir}, which inherits from it"))),
            None => Ok(shape),
        }
    }
}

impl MovedTable {
    /// Returns the table for rows that are deleted.
    pub fn alone(
        name: &str,
        shard_by: &str,
        position: usize,
        here: &MoveSide<'_>,
    ) -> Result<MovedTable, Failure> {
        let shape = here.ordinary(position)?;
        let Some(column) = shape.column(shard_by) else {
            return Err(here.refuse(position, format!("has no column \"{shard_by}\"")));
        };
        if column.family().is_none() {
            return Err(here.refuse(position, format!("has keys of type {}", column.type_name)));
        }
        if column.equality.is_some() {
            return Err(here.refuse(position, format!("has a nondeterministic collation for \"{shard_by}\"")));
        }
        Ok(MovedTable {
            name: name.to_owned(),
            here: here.facts.names[position].clone(),
            there: String::new(),
            stage: format!("shardmaster_misplaced_{position}"),
            same_key: String::new(),
            strangers: BTreeSet::new(),
            shard_by: column.clone(),
            columns: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Returns the table for rows that are moved.
    pub fn of(
        name: &str,
        shard_by: &str,
        position: usize,
        [here, there]: [&MoveSide<'_>; 2],
    ) -> Result<MovedTable, Failure> {
        let pair = MovedTable::alone(name, shard_by, position, here)?;
        let (from, to) = (here.ordinary(position)?, there.ordinary(position)?);
        if let Some(leaf) = to.leaves().iter().find(|leaf| leaf.persistence != "p") {
            return Err(there.refuse(position, format!("is not logged: {}", leaf.name)));
        }
        if from.key().is_empty() || to.key().is_empty() {
            let side = if from.key().is_empty() { here } else { there };
            return Err(side.refuse(position, "has no primary key"));
        }
        if from.key() != to.key() {
            return Err(
                there.refuse(position, format!("has a different primary key from shard \"{}\"", here.shard))
            );
        }
        for (side, shape) in [(here, from), (there, to)] {
            let is_made =
                |name: &&String| shape.column(name).is_some_and(|column| column.generated.is_some());
            if let Some(name) = shape.key().iter().find(is_made) {
                return Err(
                    side.refuse(position, format!("has a generated column \"{name}\" in its primary key"))
                );
            }
        }
        let alike = |column: &Column, other: &Column| {
            let is_builtin = column.builtin && other.builtin;
            column.generated.is_some() == other.generated.is_some()
                && column.signature == other.signature
                && (!is_builtin || column.type_name == other.type_name)
        };
        for (side, other, shape, its) in [(here, there, from, to), (there, here, to, from)] {
            let odd = |column: &&Column| !its.column(&column.name).is_some_and(|its| alike(column, its));
            if let Some(column) = shape.columns().iter().find(odd) {
                let what = format!(
                    "has a column \"{}\" that is different on shard \"{}\"",
                    column.name, other.shard
                );
                return Err(side.refuse(position, what));
            }
        }
        if let Some(column) = from.columns().iter().find(|column| column.cannot_travel().is_some()) {
            let what = format!(
                "has a column \"{}\" of type {}, whose values may change on the way",
                column.name, column.type_name
            );
            return Err(here.refuse(position, what));
        }
        let of_one_server = from.columns().iter().find_map(|column| Some((column, column.of_one_server()?)));
        if let Some((column, part)) = of_one_server {
            let what = format!(
                "has a column \"{}\" of type {}: values of type {} have a meaning on their own server only",
                column.name, column.type_name, part.name
            );
            return Err(here.refuse(position, what));
        }
        let stored = from.columns().iter().filter(|column| column.generated.is_none());
        let key: Vec<String> = to.key().to_vec();
        let equal = to.key_equality();
        let same = key.iter().zip(&equal).map(|(column, equality)| {
            let column = ident(column);
            equality.of(&format!("s.{column}"), &format!("t.{column}"))
        });
        Ok(MovedTable {
            there: there.facts.names[position].clone(),
            same_key: same.collect::<Vec<_>>().join(" AND "),
            columns: stored.map(|column| column.name.clone()).collect(),
            key,
            ..pair
        })
    }

    /// Returns all columns that are not generated, of a row with this name, if one is given.
    pub fn columns(&self, row: &str) -> String {
        list(&self.columns, row)
    }

    pub fn key(&self, row: &str) -> String {
        list(&self.key, row)
    }

    /// Returns a key as the shard-by column's type writes it, in its shortest form.
    pub fn own_form(&self, key: &str) -> String {
        match (self.shard_by.is_enum, self.shard_by.base.as_str()) {
            (true, _) => key.to_owned(),
            (false, "numeric") => {
                format!("pg_catalog.trim_scale({key}::pg_catalog.numeric)::pg_catalog.text")
            }
            // Without a length the type would have a length of one character.
            (false, "character" | "bpchar") => format!("{key}::pg_catalog.bpchar::pg_catalog.text"),
            (false, base) => format!("{key}::{base}::pg_catalog.text"),
        }
    }

    /// Returns the key of a row with this name, as the column writes it.
    pub fn key_of(&self, row: &str) -> String {
        let column = format!("{row}.{}", ident(&self.shard_by.name));
        if self.shard_by.is_enum { format!("{column}::pg_catalog.text") } else { self.own_form(&column) }
    }

    pub fn keys_it_has(&self, keys: &[String]) -> Vec<String> {
        keys.iter().filter(|key| !self.strangers.contains(*key)).cloned().collect()
    }

    pub fn arrived(&self) -> String {
        format!("{}_arrived", self.stage)
    }

    pub fn is_shard_by_generated(&self) -> bool {
        self.shard_by.generated.is_some()
    }

    /// Returns the condition that rows `s` of the stage and `t` of the table have the same key. Generated columns are
    /// not in the stage.
    pub fn has_same_shard_by(&self) -> String {
        let column = ident(&self.shard_by.name);
        if self.is_shard_by_generated() {
            "true".to_owned()
        } else {
            format!("pg_catalog.record_image_eq(ROW(s.{column}), ROW(t.{column}))")
        }
    }

    /// Returns the condition that a row with this name has one of the keys, at either shard.
    pub fn is_of(&self, keys: &[String], row: &str) -> String {
        let list = array_literal(&self.keys_it_has(keys));
        // An enum's name is left out: another type may have it by then.
        let cast = if self.shard_by.is_enum { String::new() } else { format!("::{}[]", self.shard_by.base) };
        format!("{row}.{} OPERATOR(pg_catalog.=) ANY ({list}{cast})", ident(&self.shard_by.name))
    }
}

fn list(names: &[String], row: &str) -> String {
    let prefix = if row.is_empty() { String::new() } else { format!("{row}.") };
    idents(&prefix, names)
}
