//! An object that a shard's tables consist of, or need, written without the schema of the tables.

use crate::agent::deparsed::canonical;
use crate::remote::result::Rows;

/// The placeholder for the schema of a shard's tables.
pub const NAMESPACE: &str = "(namespace)";

/// The prefix of the kind of objects that no selected table needs.
const UNUSED: &str = "unused ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// For example `table`, `index` or `grant`.
    pub kind: String,
    pub name: String,
    /// `None` if it belongs to no single table.
    pub on_table: Option<String>,
    /// The text by which two shards are compared.
    pub definition: String,
    /// The statement that creates it; `None` if it is created with its table, or not at all.
    pub statement: Option<String>,
}

impl Object {
    /// Reads objects in the order in which they can be created. Returns None if a row is malformed.
    pub fn read(rows: &Rows) -> Option<Vec<(i32, Object)>> {
        let read = |row: &Vec<Option<String>>| {
            let [step, kind, name, on_table, definition, statement] = row.as_slice() else { return None };
            let object = Object {
                kind: kind.clone()?,
                name: name.clone()?,
                on_table: on_table.clone(),
                definition: canonical(definition.as_deref().unwrap_or_default()),
                statement: statement.clone(),
            };
            Some((step.as_deref()?.parse().ok()?, object))
        };
        rows.rows.iter().map(read).collect()
    }

    /// Returns the identity of an object. Several grants may have the same name, so their definitions count too.
    pub fn key(&self) -> (&str, &str, &str) {
        let which = if self.is_right() { self.definition.as_str() } else { "" };
        (self.kind.strip_prefix(UNUSED).unwrap_or(&self.kind), &self.name, which)
    }

    pub fn is(&self, kinds: &[&str]) -> bool {
        kinds.contains(&self.kind.as_str())
    }

    fn is_right(&self) -> bool {
        self.is(&["grant", "revoke"])
    }

    pub fn is_unique_index(&self) -> bool {
        self.kind == "index" && self.definition.starts_with("UNIQUE ")
    }

    pub fn is_partitioned(&self) -> bool {
        self.kind == "table" && self.definition.contains("PARTITION BY ")
    }

    /// Whether no table needs it. Such an object serves later objects as well as a used one, and its absence is no
    /// difference.
    pub fn is_unused(&self) -> bool {
        self.kind.starts_with(UNUSED)
    }

    /// Returns the text for people.
    pub fn text(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}
