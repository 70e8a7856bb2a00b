//! What a shard's tables look like, as one query of the agent observes them.

use serde::Deserialize;

/// A shard in one snapshot.
#[derive(Deserialize, Clone, Debug)]
pub struct Observation {
    pub snapshot: String,
    /// System identifier and timeline: transaction ids mean nothing on another.
    pub server: String,
    pub tables: Vec<TableShape>,
}

#[derive(Deserialize, Clone, Debug)]
pub struct TableShape {
    /// None: there is no such table.
    pub oid: Option<String>,
    /// Qualified and quoted.
    pub name: String,
    pub kind: Option<String>,
    pub columns: Option<Vec<Column>>,
    /// The columns of the primary key, in its order.
    pub key: Option<Vec<String>>,
    /// The tables that hold rows: the partitions, or the table itself.
    pub leaves: Option<Vec<Leaf>>,
    /// The partitioned tables above them, qualified and quoted; none of an ordinary table.
    pub parents: Option<Vec<String>>,
    /// A table that inherits from an ordinary one: its rows would be taken for rows of it.
    pub heir: Option<String>,
}

#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// With length and precision.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Without.
    pub base: String,
    pub collation: Option<String>,
    /// Whether its binary form is the same on every server.
    pub binary: bool,
    pub not_null: bool,
    /// A default, or an identity.
    pub has_default: bool,
    pub generated: bool,
}

#[derive(Deserialize, Clone, Debug)]
pub struct Leaf {
    pub oid: String,
    /// Qualified and quoted.
    pub name: String,
    pub filenode: Option<String>,
    pub blocks: i64,
    pub persistence: String,
    pub kind: String,
    /// Our triggers on it: name, oid, xmin and whether they are enabled.
    pub triggers: Option<String>,
    /// Whether all of them are there, with their function, and fire always.
    pub captured: bool,
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

    pub fn is_partitioned(&self) -> bool {
        self.kind.as_deref() == Some("p")
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns().iter().find(|c| c.name == name)
    }

    /// Everything that must not change while rows move, in words.
    pub fn structure(&self) -> String {
        let columns: Vec<String> = self
            .columns()
            .iter()
            .map(|c| {
                let not_null = if c.not_null { " not null" } else { "" };
                let generated = if c.generated { " generated" } else { "" };
                format!("{} {}{not_null}{generated}", c.name, c.type_name)
            })
            .collect();
        let kind = self.kind.as_deref().unwrap_or("none");
        let oid = self.oid.as_deref().unwrap_or("none");
        format!("oid {oid}, kind {kind}, columns ({}), key ({})", columns.join(", "), self.key().join(", "))
    }
}
