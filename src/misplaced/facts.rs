//! The tables of one shard, and what refers to them.

use super::session::{self, MoveSession};
use crate::agent::shape::TableShape;
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, observe};
use crate::catalog::table_policy::{TableName, TablePolicy};
use crate::error::Failure;
use crate::remote::RemoteError;
use crate::remote::quote::ident;
use crate::remote::template::{fill, texts};
use serde::Deserialize;

pub struct MisplacedFacts {
    /// Their names, qualified and quoted.
    pub names: Vec<String>,
    pub shapes: Vec<TableShape>,
    pub foreign_keys: Vec<ForeignKey>,
    /// A text that differs once any of this has changed.
    pub seen: String,
}

/// A foreign key from or to one of the tables, or one of their partitions.
#[derive(Deserialize, Debug, Default)]
pub struct ForeignKey {
    pub name: String,
    pub from: String,
    /// `None` if it is not from one of the tables.
    pub from_position: Option<usize>,
    pub to: String,
    pub to_position: Option<usize>,
    pub columns: Option<Vec<Matched>>,
    /// What it does when a row is deleted or changed, if it does anything.
    pub follows: String,
}

#[derive(Deserialize, Debug, Default)]
pub struct Matched {
    pub from: String,
    pub to: String,
    pub operator: String,
    pub operands: Option<[String; 2]>,
}

impl ForeignKey {
    /// Whether it deletes or changes rows when those that they refer to are deleted.
    pub fn follows_deletes(&self) -> bool {
        self.follows.contains("ON DELETE")
    }

    /// Returns a condition that a row `c` refers to a row `p`.
    pub fn refers(&self) -> String {
        let matched = self.columns.as_deref().unwrap_or_default().iter().map(|column| {
            let [left, right] = match &column.operands {
                Some([left, right]) => [format!("::{left}"), format!("::{right}")],
                None => [String::new(), String::new()],
            };
            let (to, from) = (ident(&column.to), ident(&column.from));
            format!("p.{to}{left} {} c.{from}{right}", column.operator)
        });
        matched.collect::<Vec<_>>().join(" AND ")
    }
}

/// Returns the names of the tables on a shard.
fn places(session: &MoveSession, tables: &[TablePolicy]) -> TableNames {
    tables.iter().map(|policy| TableName::of(&policy.table_name).on(&session.shard.namespace)).collect()
}

pub fn look(session: &mut MoveSession, tables: &[TablePolicy]) -> Result<MisplacedFacts, Failure> {
    let places = places(session, tables);
    let columns: Vec<String> = tables.iter().map(|policy| policy.shard_by.clone()).collect();
    let qualified: Vec<String> =
        (0..tables.len()).filter_map(|position| places.qualified(position)).collect();
    let connection = &mut session.connection;
    // This is read first: it shows changes that come later.
    let seen = connection.run(&session::seen(&qualified))?.scalar().unwrap_or_default().to_owned();
    let shapes = observe::tables(connection, &places, &columns)?.tables;
    if shapes.len() != tables.len() {
        return Err(RemoteError::unreadable(connection.shard(), "its tables").into());
    }
    let lists = places.lists_with(&columns);
    let [schemas, names, columns] = lists.each_ref().map(|list| Some(list.as_str()));
    let query = include_str!("../../sql/check/foreign_keys.sql");
    let found = catalogs::ask(connection, query, &[schemas, names, columns, Some("true")])?;
    let foreign_keys: Vec<ForeignKey> = serde_json::from_str(found.scalar().unwrap_or_default())
        .map_err(|error| RemoteError::unreadable(connection.shard(), error))?;
    let is_position = |position: &Option<usize>| position.is_none_or(|position| position < tables.len());
    if !foreign_keys.iter().all(|key| is_position(&key.from_position) && is_position(&key.to_position)) {
        return Err(RemoteError::unreadable(connection.shard(), "its foreign keys").into());
    }
    Ok(MisplacedFacts { names: qualified, shapes, foreign_keys, seen })
}

/// Returns a trigger of others that fires when rows of the tables are deleted.
pub fn trigger(session: &mut MoveSession, tables: &[String]) -> Result<Option<String>, Failure> {
    let query = fill(include_str!("../../sql/misplaced/triggers.sql"), &[("tables", texts(tables))]);
    Ok(session.connection.run(&query)?.scalar().map(str::to_owned))
}

/// Returns a rule for deleted rows of the tables, and its table.
pub fn rule(session: &mut MoveSession, tables: &[String]) -> Result<Option<(String, String)>, Failure> {
    let query = fill(include_str!("../../sql/misplaced/rules.sql"), &[("tables", texts(tables))]);
    let found = session.connection.run(&query)?;
    match found.rows.first().map(Vec::as_slice) {
        Some([Some(table), Some(rule)]) => Ok(Some((table.clone(), rule.clone()))),
        _ => Ok(None),
    }
}
