//! A table's rows must move by one key: on a shard no two policies may mean one table.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::text_array;
use crate::split::finding::Finding;

const POLICIES: &str = include_str!("../../../sql/check/policies.sql");

/// Returns a finding for each table of the split that another policy means too.
pub fn check(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<Finding>> {
    let TableNames { mut schemas, mut names } = TableNames::of(plan, side);
    let count = names.len();
    let mut keyspaces = vec![plan.keyspace.clone(); count];
    for other in &plan.other_tables {
        keyspaces.push(other.keyspace.clone());
        schemas.push(other.schema.clone());
        names.push(other.name.clone());
    }
    let lists = [keyspaces, schemas, names].map(|list| text_array(&list));
    let rows = connection
        .query(POLICIES, &[Some(&lists[0]), Some(&lists[1]), Some(&lists[2]), Some(&count.to_string())])?;
    let name = format!("{}: one keyspace", side.as_str());
    let hint = "A table's rows move by one key. Remove one of the two with shard_table_drop().";
    Ok(rows
        .rows
        .into_iter()
        .map(|row| Finding::new(&name, false, row.into_iter().next().flatten().unwrap_or_default(), hint))
        .collect())
}
