//! The structure of a shard's tables, as one query of the agent reads them.

use crate::remote::number::MOST_BLOCKS;
use serde::Deserialize;
use std::collections::BTreeMap;

const PLAIN_EQUALITY: &str = "OPERATOR(pg_catalog.=)";

/// A shard in one snapshot.
#[derive(Deserialize, Clone, Debug)]
pub struct Observation {
    pub snapshot: String,
    /// System identifier and timeline: transaction ids have no meaning on another server.
    pub server: String,
    /// The encoding of the database.
    pub encoding: String,
    /// A number for all code that its tables could run; it differs once any of that has changed.
    pub code: Option<String>,
    /// A number that differs once anything may have changed that this was read from.
    pub stamp: Option<String>,
    /// What that was, as lists of the catalogs' numbers.
    pub kin: Vec<Option<String>>,
    /// A column whose type is nested deeper than is searched.
    pub endless: Option<String>,
    pub tables: Vec<TableShape>,
}

#[derive(Deserialize, Clone, Debug, Default)]
pub struct TableShape {
    /// `None` if there is no such table.
    pub oid: Option<String>,
    /// The name, qualified and quoted.
    pub name: String,
    pub kind: Option<String>,
    pub columns: Option<Vec<Column>>,
    /// Differs whenever ALTER TABLE has written something of a column.
    pub altered: Option<String>,
    /// The columns of the primary key, in its order.
    pub key: Option<Vec<String>>,
    /// The equality operator of each, by its index. `None` if the index has another order than that of a btree.
    pub operators: Option<Vec<Option<String>>>,
    /// The type that each of these compares. `None` if that of the column suffices.
    pub operands: Option<Vec<Option<String>>>,
    /// The tables that hold rows: the partitions, or the table itself.
    pub leaves: Option<Vec<Leaf>>,
    /// The partitioned tables above them, qualified and quoted; an ordinary table has none.
    pub parents: Option<Vec<String>>,
    /// A table that inherits from an ordinary one: its rows would be taken for rows of that one.
    pub heir: Option<String>,
    /// What would change rows that are copied into it, or make them violate its constraints.
    pub hazards: Option<String>,
    /// Its keys, unique and exclusion constraints.
    pub promises: Option<Vec<Exclusion>>,
}

/// A constraint by which two rows of a table exclude each other.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    pub name: String,
    pub says: String,
    pub columns: Vec<String>,
    pub is_deferrable: bool,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// Its number on this side, and those of its type's attributes: a column that is dropped and added again has
    /// another one.
    pub number: String,
    /// The type with length and precision.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The type without these, and without the domains around it.
    pub base: String,
    /// The type with these, but without domains.
    pub stored: String,
    pub is_enum: bool,
    /// The oid of each label, for a shard-by column of an enum.
    pub labels: Option<BTreeMap<String, String>>,
    /// Whether the type itself is one of the server's own.
    pub builtin: bool,
    /// What the type is made of. `None` for the server's own types.
    pub signature: Option<String>,
    /// The innermost types of the signature.
    pub parts: Vec<TypePart>,
    /// `None` means that of the type.
    pub collation: Option<String>,
    /// What the collation treats as equal, if that is not the same bytes.
    pub equality: Option<String>,
    pub not_null: bool,
    /// Whether NOT NULL holds for earlier rows, too: since PostgreSQL 18 it need not.
    pub is_validated: bool,
    /// Whether there is a default, or an identity.
    pub has_default: bool,
    /// The expression that generates it. `None` if it is not generated.
    pub generated: Option<String>,
}

/// A type that is not made of others.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct TypePart {
    /// The name as the server writes it; for a type of an extension, without a schema.
    pub name: String,
    pub kind: String,
    pub extension: Option<String>,
    pub builtin: bool,
}

#[derive(Deserialize, Clone, Debug)]
pub struct Leaf {
    pub oid: String,
    /// The name, qualified and quoted.
    pub name: String,
    pub filenode: Option<String>,
    pub blocks: i64,
    pub persistence: String,
    pub kind: String,
    /// The split's triggers on it: name, oid, xmin and whether they are enabled.
    pub triggers: Option<String>,
    /// Whether all of them exist, with their function, and fire always.
    pub captured: bool,
}

impl Observation {
    pub fn code(&self) -> &str {
        self.code.as_deref().unwrap_or_default()
    }

    /// Returns a number that no server has reason to report, for a split of this many tables.
    pub fn impossible(&self, tables: usize) -> Option<(&'static str, String)> {
        if self.tables.len() != tables {
            return Some(("the number of tables", self.tables.len().to_string()));
        }
        let leaves = || self.tables.iter().flat_map(TableShape::leaves);
        let blocks = leaves().find(|leaf| !(0..=MOST_BLOCKS).contains(&leaf.blocks));
        let oid = leaves().find(|leaf| leaf.oid.parse::<u32>().is_err());
        blocks
            .map(|leaf| ("the blocks of a table", leaf.blocks.to_string()))
            .or_else(|| oid.map(|leaf| ("the oid of a table", leaf.oid.clone())))
    }

    /// Returns the server's identity without its timeline.
    pub fn system(&self) -> &str {
        self.server.split_once(':').map_or(&self.server, |(system, _)| system)
    }
}

impl TableShape {
    pub fn columns(&self) -> &[Column] {
        self.columns.as_deref().unwrap_or_default()
    }

    pub fn key(&self) -> &[String] {
        self.key.as_deref().unwrap_or_default()
    }

    pub fn leaves(&self) -> &[Leaf] {
        self.leaves.as_deref().unwrap_or_default()
    }

    pub fn parents(&self) -> &[String] {
        self.parents.as_deref().unwrap_or_default()
    }

    /// Whether a query over it reads only tables of this server: neither a view nor a foreign table. A missing table
    /// reads nothing.
    pub fn is_ordinary(&self) -> bool {
        matches!(self.kind.as_deref(), None | Some("r" | "p"))
            && self.leaves().iter().all(|leaf| leaf.kind == "r")
    }

    pub fn is_partitioned(&self) -> bool {
        self.kind.as_deref() == Some("p")
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns().iter().find(|c| c.name == name)
    }

    /// Returns a deferrable constraint of this table, the target's, that rows of the other one need not satisfy, and
    /// why: a replica's session does not check it. `is_own`: which columns the other table does not have.
    pub fn unkept_promise(
        &self,
        other: &TableShape,
        is_own: impl Fn(&str) -> bool,
    ) -> Option<(&Exclusion, &'static str)> {
        let given = other.promises.as_deref().unwrap_or_default();
        let why = |promise: &Exclusion| {
            if given.iter().any(|other| other.says == promise.says) {
                promise.columns.iter().any(|column| is_own(column)).then_some("of a generated column")
            } else {
                Some("which the source does not have")
            }
        };
        let promises = self.promises.as_deref().unwrap_or_default();
        let deferrable = promises.iter().filter(|promise| promise.is_deferrable);
        deferrable.filter_map(|promise| Some((promise, why(promise)?))).next()
    }

    /// Returns everything that must not change while rows move, in words.
    pub fn structure(&self) -> String {
        let columns: Vec<String> = self.columns().iter().map(Column::structure).collect();
        let kind = self.kind.as_deref().unwrap_or("none");
        let oid = self.oid.as_deref().unwrap_or("none");
        let operators = self.operators.as_deref().unwrap_or_default();
        let key: Vec<String> = self
            .key()
            .iter()
            .enumerate()
            .map(|(n, name)| match operators.get(n).cloned().flatten() {
                Some(operator) if operator != PLAIN_EQUALITY => format!("{name} by {operator}"),
                Some(_) | None => name.clone(),
            })
            .collect();
        format!("oid {oid}, kind {kind}, columns ({}), key ({})", columns.join(", "), key.join(", "))
    }

    /// Whether `before` is the structure of this table, with the same key, and whether these columns and one more are
    /// unchanged: rows are distinguished and found by them.
    pub fn keeps_key(&self, before: &str, other: &str) -> bool {
        fn ends(structure: &str) -> Option<(&str, &str)> {
            Some((structure.split(", columns (").next()?, structure.rsplit(", key (").next()?))
        }
        let now = self.structure();
        let names = self.key().iter().map(String::as_str).chain([other]);
        let mut columns = names.map(|name| self.column(name));
        ends(&now) == ends(before)
            && columns.all(|column| column.is_some_and(|column| before.contains(&column.structure())))
    }

    /// Returns the equality of each column of the key, with its schema.
    pub fn key_equality(&self) -> Vec<Equality<'_>> {
        fn at(list: &Option<Vec<Option<String>>>, n: usize) -> Option<&str> {
            list.as_ref()?.get(n)?.as_deref()
        }
        let equality = |n| Equality {
            operator: at(&self.operators, n).unwrap_or(PLAIN_EQUALITY),
            operand: at(&self.operands, n),
        };
        (0..self.key().len()).map(equality).collect()
    }
}

/// Returns the content of a part of a signature, without the steps that lead to it through domains.
fn of_itself(part: &str) -> &str {
    match part.split_once(' ') {
        Some((path, text)) if path.split('/').all(|step| step == "base") => text,
        Some(_) | None => part,
    }
}

/// Returns the oid in such a structure.
pub fn oid_of(structure: &str) -> Option<&str> {
    structure.strip_prefix("oid ")?.split(',').next()
}

/// An operator by its name. Of several operators of that name the server takes the best match, so both operands are
/// cast to the type that the operator compares.
#[derive(Clone, Copy)]
pub struct Equality<'a> {
    operator: &'a str,
    operand: Option<&'a str>,
}

impl Equality<'_> {
    pub fn of(&self, left: &str, right: &str) -> String {
        let cast = self.operand.map(|name| format!("::{name}")).unwrap_or_default();
        format!("{left}{cast} {} {right}{cast}", self.operator)
    }
}

impl Column {
    /// Returns its number in its table, without those of its type's attributes.
    pub fn attribute(&self) -> &str {
        self.number.split(' ').next().unwrap_or_default()
    }

    pub fn is_of_domain(&self) -> bool {
        self.signature.as_ref().is_some_and(|signature| signature.starts_with("domain"))
    }

    /// Whether its domain, or one that this is made of, is NOT NULL.
    pub fn is_of_domain_not_null(&self) -> bool {
        let mut parts = self.signature.iter().flat_map(|signature| signature.split("; "));
        self.is_of_domain() && parts.any(|part| of_itself(part).starts_with("domain not null"))
    }

    fn structure(&self) -> String {
        let mut text = format!("{} {} {}", self.number, self.name, self.type_name);
        let facts = [("collate", &self.collation), ("by", &self.equality), ("made of", &self.signature)];
        for (word, fact) in facts {
            if let Some(fact) = fact {
                text += &format!(" {word} {fact}");
            }
        }
        if self.not_null {
            text += " not null";
        }
        if let Some(expression) = &self.generated {
            text += " generated by ";
            text += expression;
        }
        text
    }
}
