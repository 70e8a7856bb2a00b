//! What reference tables look like on a shard now.

use crate::agent::{self, catalogs, reference};
use crate::catalog::reference::{Member, Set};
use crate::catalog::shard::Shard;
use crate::remote::quote::{ident, text_array};
use crate::remote::{Connection, RemoteError};
use serde::Deserialize;
use std::sync::LazyLock;

static LOOK: LazyLock<String> = LazyLock::new(|| {
    include_str!("../../sql/reference/look.sql").replace("{code}", &agent::code(["$4", "$5", "$6"]))
});

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What its tables could run: another text when something of it has changed.
    code: Option<String>,
    pub tables: Vec<Seen>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// None: there is no such table.
    pub oid: Option<String>,
    filenode: Option<String>,
    columns: Option<String>,
    key: Option<String>,
    triggers: Option<String>,
    installed: Option<i32>,
}

impl Seen {
    /// Another text once rows may have changed without an entry in the queue.
    pub fn mark(&self) -> String {
        let parts = [&self.oid, &self.filenode, &self.columns, &self.key, &self.triggers];
        parts.map(|part| part.as_deref().unwrap_or("-")).join(" ")
    }

    /// Whether so many of our triggers are there, fire always, and capture by the key that the table has.
    pub fn has(&self, triggers: i32) -> bool {
        self.installed == Some(triggers)
    }
}

/// The tables of a set as a shard calls them: schemas and names.
pub fn names(tables: &[Member], shard: &Shard) -> (Vec<String>, Vec<String>) {
    tables.iter().map(|member| (member.schema(shard), member.name.name.clone())).unzip()
}

/// Qualified and quoted.
pub fn qualified(tables: &[Member], shard: &Shard) -> Vec<String> {
    let name = |member: &Member| format!("{}.{}", ident(&member.schema(shard)), ident(&member.name.name));
    tables.iter().map(name).collect()
}

/// The statements that look, of which one gives rows.
pub fn statements(
    connection: &mut Connection,
    set: &Set,
    tables: &[Member],
    shard: &Shard,
) -> Result<String, RemoteError> {
    let (schemas, names) = names(tables, shard);
    let prefixes: Vec<String> =
        tables.iter().map(|member| reference::trigger_prefix(set.id, member.ordinal)).collect();
    let none = text_array(&[]);
    let lists =
        [text_array(&schemas), text_array(&names), text_array(&prefixes), none.clone(), none.clone(), none];
    let parameters = lists.each_ref().map(|list| Some(list.as_str()));
    catalogs::statements(connection, "reference_look", &LOOK, &parameters)
}

pub fn read(connection: &Connection, text: Option<&str>, count: usize) -> Result<Look, RemoteError> {
    let look: Look = serde_json::from_str(text.unwrap_or_default())
        .map_err(|error| RemoteError::unreadable(connection.shard(), error))?;
    if look.tables.len() == count {
        return Ok(look);
    }
    Err(RemoteError::unreadable(connection.shard(), "its tables"))
}
