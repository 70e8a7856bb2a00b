//! One thing that a table has besides its columns.

use crate::agent::catalogs;
use crate::agent::deparsed::{canonical, in_schema};
use crate::agent::error::Result;
use crate::remote::quote::ident_as_needed;
use crate::remote::{Connection, RemoteError};
use serde::Deserialize;
use std::collections::BTreeSet;

const BESIDE_COLUMNS: &str = include_str!("../../../../../sql/check/beside_columns.sql");

#[derive(Debug, Default)]
pub struct Fact {
    pub position: usize,
    /// `trigger`, `policy`, `unique key` ..
    pub kind: String,
    pub name: String,
    pub says: String,
    /// The table's columns that it uses, by name; a trigger or a policy has none.
    pub columns: BTreeSet<String>,
    pub index: Option<ComparedIndex>,
    /// Whether it holds for earlier rows, too.
    pub is_held: bool,
    /// The schema as the server writes it.
    schema: String,
    /// Whether the server writes columns of views without their table, if there is only one.
    is_brief: bool,
}

/// Servers from this version on do.
const BRIEF: i32 = 160_000;

/// What an index, or the key that it implements, compares rows by.
#[derive(Deserialize, Debug, Default)]
pub struct ComparedIndex {
    pub method: String,
    pub parts: BTreeSet<String>,
    /// Parts that are computed, or whose values may be too long for the index.
    pub untried: BTreeSet<String>,
    /// The index does not cover all rows.
    pub is_of_some: bool,
    pub are_nulls_equal: bool,
    /// The constraint's name. `None` if it is only an index.
    pub constraint: Option<String>,
    /// When the constraint is checked, unless at once: `DEFERRABLE INITIALLY DEFERRED`; or that its triggers are
    /// disabled.
    pub checked: String,
}

impl ComparedIndex {
    fn read(text: &str) -> Option<ComparedIndex> {
        let read: ComparedIndex = serde_json::from_str(text).ok()?;
        let again = |parts: BTreeSet<String>| parts.iter().map(|part| canonical(part)).collect();
        Some(ComparedIndex { parts: again(read.parts), untried: again(read.untried), ..read })
    }
}

pub fn of(session: &mut Connection, lists: &[String; 2]) -> Result<Vec<Fact>> {
    let rows = catalogs::ask(session, BESIDE_COLUMNS, &catalogs::given(lists))?;
    let is_brief = session.server_version() >= BRIEF;
    let read = |row: &Vec<Option<String>>| -> Option<Fact> {
        let [position, kind, name, says, columns, index, is_held, schema] = row.as_slice() else {
            return None;
        };
        Some(Fact {
            position: position.as_ref()?.parse().ok()?,
            kind: kind.clone()?,
            name: name.clone()?,
            says: canonical(says.as_deref().unwrap_or_default()),
            columns: columns
                .as_deref()
                .map_or(Some(BTreeSet::new()), |text| serde_json::from_str(text).ok())?,
            index: index.as_deref().map_or(Some(None), |text| ComparedIndex::read(text).map(Some))?,
            is_held: is_held.as_deref() == Some("t"),
            schema: schema.clone()?,
            is_brief,
        })
    };
    let facts: Option<Vec<Fact>> = rows.rows.iter().map(read).collect();
    Ok(facts
        .ok_or_else(|| RemoteError::unreadable(session.shard(), "what its tables have beside columns"))?)
}

impl Fact {
    /// Returns the fact of a view in no keyspace.
    pub fn of_view(name: &str, shows: &str, schema: &str, version: i32) -> Fact {
        Fact {
            kind: "view".to_owned(),
            name: name.to_owned(),
            says: canonical(shows),
            schema: ident_as_needed(schema),
            is_brief: version >= BRIEF,
            ..Fact::default()
        }
    }

    pub fn is(&self, kinds: &[&str]) -> bool {
        kinds.contains(&self.kind.as_str())
    }

    /// Whether both are the same kind of thing of the same table.
    pub fn is_beside(&self, other: &Fact) -> bool {
        self.position == other.position && self.kind == other.kind
    }

    /// Whether both have the same definition; if shards are namespaces, each in its own one.
    pub fn says_as(&self, other: &Fact) -> bool {
        let says = in_schema(&self.says, &self.schema, &other.schema);
        says == other.says
            || self.is_brief != other.is_brief
                && self.is(&["view", "materialized view", "view rule"])
                && brief(&says) == brief(&other.says)
    }

    pub fn text(&self) -> String {
        match self.kind.as_str() {
            "setting" => self.name.clone(),
            kind => format!("{kind} \"{}\"", self.name),
        }
    }
}

/// Returns a query without the qualifiers of its names.
fn brief(query: &str) -> String {
    let is_letter = |c: char| c.is_alphanumeric() || "_$\"".contains(c);
    let mut said = String::with_capacity(query.len());
    let mut name = String::new();
    for c in query.chars() {
        match c {
            '.' if name.starts_with(|first: char| !first.is_ascii_digit()) => {
                said.truncate(said.len() - name.len());
                name.clear();
            }
            _ => {
                said.push(c);
                if is_letter(c) { name.push(c) } else { name.clear() }
            }
        }
    }
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn versions_that_qualify_columns_say_the_same_view() {
        let older = " SELECT items.tenant,\n    (items.\"Id\" * 1.5)\n   FROM public.items;";
        let newer = " SELECT tenant,\n    (\"Id\" * 1.5)\n   FROM public.items;";
        assert_eq!(brief(older), brief(newer));
        assert_eq!(brief(newer), "SELECT tenant, (\"Id\" * 1.5) FROM items;");
    }
}
