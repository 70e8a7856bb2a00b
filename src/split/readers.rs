//! Logical replication of a shard's tables that was set up while the split runs: a publication of all tables contains
//! the agent's, which its subscribers do not have; a subscription writes what the split moves. The check refuses them
//! before the start.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::Connection;

/// Queries that return rows of a check.
pub const ALL_TABLES: &str = include_str!("../../sql/check/all_tables.sql");
const SUBSCRIBED: &str = include_str!("../../sql/check/subscribed.sql");

/// A publication or subscription.
pub struct SnapshotReader {
    pub text: String,
    pub hint: String,
}

/// Returns those of a side. A publication without readers does not matter.
pub fn find(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<SnapshotReader>> {
    let rows = connection
        .run(&format!("SELECT text, hint FROM ({ALL_TABLES}) AS p (name, ok, text, hint) WHERE NOT ok"))?;
    let [schemas, names] = TableNames::of(plan, side).lists();
    let is_target = (side == Side::Target).to_string();
    let subscribed = catalogs::ask(connection, SUBSCRIBED, &catalogs::given(&[schemas, names, is_target]))?;
    Ok(rows.rows.iter().chain(&subscribed.rows).map(|row| reader(row)).collect())
}

fn reader(row: &[Option<String>]) -> SnapshotReader {
    let cell = |n: usize| row.get(n).cloned().flatten().unwrap_or_default();
    SnapshotReader { text: cell(0), hint: cell(1) }
}
