//! The structure of reference tables on a shard now.

use crate::agent::error::SplitError;
use crate::agent::table_names::TableNames;
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
/// The query without what the tables could run, which is the most expensive part by far.
static GLANCE: LazyLock<String> = LazyLock::new(|| fill(QUERY, &[("code", sql("NULL"))]));

/// The end of a set that a shard is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SetEnd {
    Origin,
    Copy,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceLook {
    /// What its tables could run: a text that differs when something of it has changed.
    code: Option<String>,
    pub tables: Vec<SeenSet>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenSet {
    /// `None` if there is no such table.
    pub oid: Option<String>,
    filenode: Option<String>,
    columns: Option<String>,
    key: Option<String>,
    triggers: Option<String>,
    subscribed: Option<String>,
    /// The numbers of effective guards and captures, and of all triggers.
    installed: Option<[i32; 3]>,
}

/// The number of triggers of a table on its origin, and of a copy.
const CAPTURES: i32 = 3;
const GUARDS: i32 = 1;

impl SeenSet {
    /// Returns a text that differs once rows may have changed without an entry in the queue.
    pub fn mark(&self) -> String {
        let parts = [&self.oid, &self.filenode, &self.columns, &self.key, &self.triggers, &self.subscribed];
        parts.map(|part| part.as_deref().unwrap_or("-")).join(" ")
    }

    /// Whether the triggers of an end exist, fire always, and capture by the current key; and none of the other end,
    /// which a table has that came with a copy of the disk, or from a dump.
    pub fn has(&self, end: SetEnd) -> bool {
        let of_end = match end {
            SetEnd::Origin => [0, CAPTURES, CAPTURES],
            SetEnd::Copy => [GUARDS, 0, GUARDS],
        };
        self.installed == Some(of_end)
    }
}

/// The error for a shard without the row of its set.
pub fn not_restored(connection: &Connection) -> SplitError {
    let shard = connection.shard();
    SplitError::Retry(format!("the state of the reference tables on shard \"{shard}\" to be restored"))
}

/// Returns the tables of a set by their names on a shard.
pub fn names(tables: &[Member], shard: &Shard) -> TableNames {
    tables.iter().map(|member| (member.schema(shard), member.name.name.clone())).collect()
}

/// Returns the names, qualified and quoted.
pub fn qualified(tables: &[Member], shard: &Shard) -> Vec<String> {
    let name = |member: &Member| format!("{}.{}", ident(&member.schema(shard)), ident(&member.name.name));
    tables.iter().map(name).collect()
}

/// Returns schemas, names, and the prefixes of triggers' names.
fn lists(set: &ReferenceSet, tables: &[Member], shard: &Shard) -> [String; 3] {
    let prefixes: Vec<String> =
        tables.iter().map(|member| reference::trigger_prefix(set.id, member.ordinal)).collect();
    names(tables, shard).lists_with(&prefixes)
}

/// Returns the statements of the query, of which one gives rows.
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

/// Returns the statements for a text that differs once rows may have changed without an entry in the queue.
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
