//! The tables of a keyspace on a shard, as a guard needs them. A table whose keys the guard could not look up in its
//! list as routes mean them is refused by name.

use super::error;
use crate::agent::error::Result;
use crate::agent::observe;
use crate::agent::shape::{Column, TableShape};
use crate::agent::table_names::TableNames;
use crate::agent::types::TypeFamily;
use crate::catalog::keyspace::Keyspace;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::{self, TableName};
use crate::clean;
use crate::keys::ordered::Ordered;
use crate::remote::{Connection, RemoteError};

/// The tables, in the order of their names.
pub struct GuardedTables(Vec<GuardedTable>);

pub struct GuardedTable {
    pub name: String,
    pub shape: TableShape,
    /// The shard-by column.
    pub column: Column,
}

impl GuardedTables {
    pub fn look(session: &mut Connection, shard: &Shard, keyspace: &Keyspace) -> Result<GuardedTables> {
        let policies = table_policy::require(&keyspace.name)?;
        let names: TableNames =
            policies.iter().map(|policy| TableName::of(&policy.table_name).on(&shard.namespace)).collect();
        let columns: Vec<String> = policies.iter().map(|policy| policy.shard_by.clone()).collect();
        let shapes = observe::tables(session, &names, &columns)?.tables;
        if shapes.len() != policies.len() {
            return Err(RemoteError::unreadable(session.shard(), "its tables").into());
        }
        let mut tables = Vec::new();
        for (policy, shape) in policies.into_iter().zip(shapes) {
            let refused = |what: String| error::unfit_table(&shard.shard_key, &policy.table_name, &what);
            let column = column_of(&shape, &policy.shard_by, keyspace).map_err(refused)?;
            tables.push(GuardedTable { name: policy.table_name, shape, column });
        }
        require_alike(&tables, shard, keyspace)?;
        tables.sort_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        Ok(GuardedTables(tables))
    }

    pub fn iter(&self) -> impl Iterator<Item = &GuardedTable> {
        self.0.iter()
    }

    pub fn first(&self) -> Option<&GuardedTable> {
        self.0.first()
    }
}

/// Returns the shard-by column, or what is wrong with the table.
fn column_of(shape: &TableShape, shard_by: &str, keyspace: &Keyspace) -> std::result::Result<Column, String> {
    if shape.oid.is_none() {
        return Err("does not exist".to_owned());
    }
    if !shape.is_ordinary() {
        return Err("is not a table, or has partitions that are not tables".to_owned());
    }
    // An INSERT into the heir does not fire this table's triggers.
    if let Some(heir) = &shape.heir {
        return Err(format!("has {}, which inherits from it", clean::printable(heir)));
    }
    let column = shape.column(shard_by).ok_or_else(|| format!("has no column \"{shard_by}\""))?;
    let family = column.family().ok_or_else(|| format!("has keys of type {}", column.type_name))?;
    if column.equality.is_some() {
        return Err(format!("has a nondeterministic collation for \"{shard_by}\""));
    }
    let fits = match keyspace.strategy.of() {
        None => true,
        Some(Ordered::BigInt) => family == TypeFamily::Integer,
        Some(Ordered::Text) => family == TypeFamily::Text,
        Some(Ordered::Uuid) => family == TypeFamily::Uuid,
    };
    let is_told = keyspace.key_type().tells_apart(column.is_padded(), keyspace.strategy.is_directory());
    if fits && is_told {
        Ok(column.clone())
    } else {
        Err(format!(
            "has keys of type {}, and the keyspace has {}",
            column.type_name,
            keyspace.key_type().as_str()
        ))
    }
}

/// Requires keys of one type, because all tables share one list of keys.
fn require_alike(tables: &[GuardedTable], shard: &Shard, keyspace: &Keyspace) -> Result<()> {
    let compared = |column: &Column| column.family().map(|family| family.compared_as());
    let Some(first) = tables.first() else { return Ok(()) };
    let odd = tables.iter().find(|table| compared(&table.column) != compared(&first.column));
    match odd {
        Some(table) if keyspace.strategy.is_directory() => {
            let what = format!(
                "has keys of type {}, and table {} has {}",
                table.column.type_name, first.name, first.column.type_name
            );
            Err(error::unfit_table(&shard.shard_key, &table.name, &what).into())
        }
        _ => Ok(()),
    }
}
