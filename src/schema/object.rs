//! A thing that a shard's tables are made of, or need, written down without the schema that they are in.

use crate::agent::deparsed::canonical;
use crate::remote::result::Rows;

/// What the schema of a shard's tables is called in what is written down.
pub const NAMESPACE: &str = "(namespace)";

/// Before the kind of what no table that is looked at needs.
const UNUSED: &str = "unused ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// `table`, `index`, `grant` ..
    pub kind: String,
    pub name: String,
    /// None: it is of no single table.
    pub on_table: Option<String>,
    /// What two shards are compared by.
    pub definition: String,
    /// What makes it; None: it comes with its table, or is not made.
    pub statement: Option<String>,
}

impl Object {
    /// In the order in which they can be made. None: a row that is none.
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

    /// Of one name there are several grants.
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

    /// As good as one that is used, for what comes; and no difference where it is not there.
    pub fn is_unused(&self) -> bool {
        self.kind.starts_with(UNUSED)
    }

    /// As people read it.
    pub fn text(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}
