//! A reference table on its origin and as a copy. A table whose values may not be copied unchanged is refused by name.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::{Column, TableShape};
use crate::agent::{catalogs, observe, untrusted_code};
use crate::catalog::reference::{Member, ReferencePlace, ReferenceSet};
use crate::catalog::shard::Shard;
use crate::error::SqlState;
use crate::reference::probe::{names, qualified};
use crate::remote::quote::ident;
use crate::remote::{Connection, RemoteError};
use crate::split::references::Reference;
use serde::Deserialize;

/// A table as one shard has it.
pub struct ReferenceSide {
    pub shape: TableShape,
    refused: Option<String>,
    /// Columns that are not changed in place.
    fixed: Vec<String>,
}

#[derive(Deserialize)]
struct TableTold {
    refused: Option<String>,
    fixed: Vec<String>,
}

/// A table as it is copied.
pub struct ReferenceTable {
    pub ordinal: i32,
    /// The names, qualified and quoted, on its origin and on the shard.
    pub from: String,
    pub to: String,
    /// All columns that are not generated.
    pub columns: Vec<String>,
    /// Those of them by which rows exclude each other.
    pub fixed: Vec<String>,
    pub from_shape: TableShape,
    pub to_shape: TableShape,
    /// Foreign keys of the shard's tables to it.
    pub referenced_by: Vec<Reference>,
}

fn refuse(shard: &str, table: &str, what: impl std::fmt::Display, hint: &str) -> SplitError {
    SplitError::failed(SqlState::NOT_IN_STATE, format!("table {table} on shard \"{shard}\" {what}"), hint)
}

/// Reads tables on one shard, before any query over them that could run code of others.
pub fn look(
    session: &mut Connection,
    tables: &[Member],
    place: &ReferencePlace,
    is_copy: bool,
) -> Result<Vec<ReferenceSide>> {
    let named = names(tables, &place.shard);
    untrusted_code::refuse(session, &named, &place.trusted)?;
    let shapes = observe::tables(session, &named, &vec![String::new(); tables.len()])?.tables;
    let full = qualified(tables, &place.shard);
    for (shape, name) in shapes.iter().zip(&full) {
        if shape.oid.is_none() {
            let hint = if is_copy {
                "shard_schema_copy() creates it as on another shard. Then the shard follows again automatically."
            } else {
                "Create it, or remove it from the keyspace with shard_table_drop()."
            };
            return Err(refuse(session.shard(), name, "does not exist", hint));
        }
    }
    let is_copy = if is_copy { "true" } else { "false" };
    let lists = named.lists();
    let query = include_str!("../../sql/reference/table.sql");
    let answer = catalogs::ask(session, query, &[Some(&lists[0]), Some(&lists[1]), Some(is_copy)])?;
    let told: Vec<TableTold> = serde_json::from_str(answer.scalar().unwrap_or_default())
        .map_err(|error| RemoteError::unreadable(session.shard(), error))?;
    if told.len() != tables.len() || shapes.len() != tables.len() {
        return Err(SplitError::Retry(format!(
            "shard \"{}\": its tables have just changed",
            session.shard()
        )));
    }
    let side = |(told, shape): (TableTold, TableShape)| ReferenceSide {
        shape,
        refused: told.refused,
        fixed: told.fixed,
    };
    let sides: Vec<ReferenceSide> = told.into_iter().zip(shapes).map(side).collect();
    for (side, name) in sides.iter().zip(&full) {
        side.require_fit(session.shard(), name)?;
    }
    Ok(sides)
}

impl ReferenceSide {
    fn require_fit(&self, shard: &str, name: &str) -> Result<()> {
        const HINT: &str = "Change that, or remove the table from the keyspace with shard_table_drop().";
        if let Some(what) = &self.refused {
            return Err(refuse(shard, name, what, HINT));
        }
        if self.shape.key().is_empty() {
            return Err(refuse(shard, name, "has no primary key, which is needed to find its rows", HINT));
        }
        let why = |column: &Column| match (column.cannot_travel(), column.of_one_server()) {
            (Some(_), _) => Some("whose values may change on the way"),
            (None, Some(_)) => Some("whose values have a meaning on their own server only"),
            (None, None) => None,
        };
        let odd = self.shape.columns().iter().find_map(|column| Some((column, why(column)?)));
        match odd {
            None => Ok(()),
            Some((column, why)) => {
                let what =
                    format!("has a column {} of type {}, {why}", ident(&column.name), column.type_name);
                Err(refuse(shard, name, what, HINT))
            }
        }
    }
}

fn is_alike(one: &Column, other: &Column) -> bool {
    one.type_name == other.type_name
        && one.signature == other.signature
        && one.collation == other.collation
        && one.equality == other.equality
        && one.generated == other.generated
}

impl ReferenceTable {
    pub fn of(member: &Member, [from, to]: [(ReferenceSide, &str); 2]) -> Result<ReferenceTable> {
        const HINT: &str = "Make both alike. Then the shard follows again automatically.";
        let ((from, origin), (to, shard)) = (from, to);
        for (here, there, of, other) in
            [(&from.shape, &to.shape, origin, shard), (&to.shape, &from.shape, shard, origin)]
        {
            let odd = |column: &&Column| !there.column(&column.name).is_some_and(|its| is_alike(column, its));
            if let Some(column) = here.columns().iter().find(odd) {
                let what =
                    format!("has a column {} that is different on shard \"{other}\"", ident(&column.name));
                return Err(refuse(of, &here.name, what, HINT));
            }
        }
        if from.shape.key() != to.shape.key() {
            let what = format!("has a different primary key from shard \"{origin}\"");
            return Err(refuse(shard, &to.shape.name, what, HINT));
        }
        let stored = to.shape.columns().iter().filter(|column| column.generated.is_none());
        let columns: Vec<String> = stored.map(|column| column.name.clone()).collect();
        let fixed = to.fixed.into_iter().filter(|name| columns.contains(name)).collect();
        Ok(ReferenceTable {
            ordinal: member.ordinal,
            from: from.shape.name.clone(),
            to: to.shape.name.clone(),
            columns,
            fixed,
            from_shape: from.shape,
            to_shape: to.shape,
            referenced_by: Vec::new(),
        })
    }
}

/// Finds the foreign keys of a shard to each of its copies. One of a copy to a table that is not of the set is
/// refused: rows are copied in a replica's session, where the server does not check, and what they refer to may be
/// missing.
pub fn find_references(
    session: &mut Connection,
    set: &ReferenceSet,
    tables: &[Member],
    place: &ReferencePlace,
    pairs: &mut [ReferenceTable],
) -> Result<()> {
    let lists = names(tables, &place.shard).lists_with(&vec![String::new(); tables.len()]);
    let [schemas, rels, none] = lists.each_ref().map(|list| Some(list.as_str()));
    let query = include_str!("../../sql/check/foreign_keys.sql");
    let found = catalogs::ask(session, query, &[schemas, rels, none, Some("true")])?;
    let references: Vec<Reference> = serde_json::from_str(found.scalar().unwrap_or("[]"))
        .map_err(|error| RemoteError::unreadable(session.shard(), error))?;
    if let Some(reference) = references.iter().find(|reference| leads_out(reference, set, &place.shard)) {
        return Err(refuse_reference(session.shard(), reference));
    }
    for reference in references.into_iter().filter(|reference| reference.is_validated && !reference.is_period)
    {
        if let Some(pair) = reference.to_position.and_then(|position| pairs.get_mut(position)) {
            pair.referenced_by.push(reference);
        }
    }
    Ok(())
}

/// Whether a foreign key leads out of the set; a table of the set that is the origin's own is no copy, but belongs to
/// it.
fn leads_out(reference: &Reference, set: &ReferenceSet, shard: &Shard) -> bool {
    let is_it = |member: &Member| {
        member.name.name == reference.to_name && member.schema(shard) == reference.to_schema
    };
    reference.from_position.is_some() && !set.tables.iter().any(is_it)
}

fn refuse_reference(shard: &str, reference: &Reference) -> SplitError {
    let Reference { name, from, to, .. } = reference;
    SplitError::failed(
        SqlState::UNSUPPORTED,
        format!(
            "table {from} on shard \"{shard}\" has foreign key {} to {to}, which is not a reference table of the same origin",
            ident(name)
        ),
        "Add that table as a reference table of the same origin, or drop the foreign key there. Then the shard follows again automatically.",
    )
}
