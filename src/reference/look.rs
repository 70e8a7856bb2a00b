//! What reference tables look like on a shard now.

use crate::agent::{self, catalogs, reference};
use crate::catalog::reference::{Member, ReferenceSet};
use crate::catalog::shard::Shard;
use crate::remote::quote::{ident, text_array};
use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use serde::Deserialize;
use std::sync::LazyLock;

const QUERY: &str = include_str!("../../sql/reference/look.sql");
static LOOK: LazyLock<String> =
    LazyLock::new(|| fill(QUERY, &[("code", sql(agent::code(["$4", "$5", "$6"])))]));
/// Without what the tables could run, which costs the most by far.
static GLANCE: LazyLock<String> = LazyLock::new(|| fill(QUERY, &[("code", sql("NULL"))]));

/// Which end of a set a shard is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SetEnd {
    Origin,
    Copy,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceLook {
    /// What its tables could run: another text when something of it has changed.
    code: Option<String>,
    pub tables: Vec<SeenSet>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenSet {
    /// None: there is no such table.
    pub oid: Option<String>,
    filenode: Option<String>,
    columns: Option<String>,
    key: Option<String>,
    triggers: Option<String>,
    subscribed: Option<String>,
    /// Guards and captures that do what they are to, and all there are.
    installed: Option<[i32; 3]>,
}

/// Triggers of a table on its origin, and of a copy.
const CAPTURES: i32 = 3;
const GUARDS: i32 = 1;

impl SeenSet {
    /// Another text once rows may have changed without an entry in the queue.
    pub fn mark(&self) -> String {
        let parts = [&self.oid, &self.filenode, &self.columns, &self.key, &self.triggers, &self.subscribed];
        parts.map(|part| part.as_deref().unwrap_or("-")).join(" ")
    }

    /// Whether our triggers of an end are there, fire always, and capture by the key that the table has; and none of the
    /// other end, which a table has that came as a copy of the disk, or out of a dump.
    pub fn has(&self, end: SetEnd) -> bool {
        let of_end = match end {
            SetEnd::Origin => [0, CAPTURES, CAPTURES],
            SetEnd::Copy => [GUARDS, 0, GUARDS],
        };
        self.installed == Some(of_end)
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

/// Schemas, names, and what the names of triggers begin with.
fn lists(set: &ReferenceSet, tables: &[Member], shard: &Shard) -> [String; 3] {
    let (schemas, names) = names(tables, shard);
    let prefixes: Vec<String> =
        tables.iter().map(|member| reference::trigger_prefix(set.id, member.ordinal)).collect();
    [text_array(&schemas), text_array(&names), text_array(&prefixes)]
}

/// The statements that look, of which one gives rows.
pub fn statements(
    connection: &mut Connection,
    set: &ReferenceSet,
    tables: &[Member],
    shard: &Shard,
) -> Result<String, RemoteError> {
    let ([schemas, names, prefixes], none) = (lists(set, tables, shard), text_array(&[]));
    let parameters = [&schemas, &names, &prefixes, &none, &none, &none].map(|list| Some(list.as_str()));
    catalogs::statements(connection, "reference_look", &LOOK, &parameters)
}

/// The same for a text that is another one when rows may have changed without an entry in the queue.
pub fn glance(
    connection: &mut Connection,
    set: &ReferenceSet,
    tables: &[Member],
    shard: &Shard,
) -> Result<String, RemoteError> {
    let lists = lists(set, tables, shard);
    let parameters = lists.each_ref().map(|list| Some(list.as_str()));
    catalogs::statements(connection, "reference_glance", &GLANCE, &parameters)
}

pub fn read(connection: &Connection, text: Option<&str>, count: usize) -> Result<ReferenceLook, RemoteError> {
    let look: ReferenceLook = serde_json::from_str(text.unwrap_or_default())
        .map_err(|error| RemoteError::unreadable(connection.shard(), error))?;
    if look.tables.len() == count {
        return Ok(look);
    }
    Err(RemoteError::unreadable(connection.shard(), "its tables"))
}
