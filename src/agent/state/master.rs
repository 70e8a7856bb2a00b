//! The table `master`: the one master that may move data of a database.

use super::ask;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::remote::{Connection, quote};

/// The version of the tables and functions in the agent's schema.
const VERSION: i32 = 1;

/// Refuses a shard that belongs to another master, or whose agent another version of the extension has installed: what
/// this master would write there may have another meaning.
pub fn check(connection: &mut Connection, identity: &str) -> Result<()> {
    let rows =
        ask(connection, "master", "SELECT identity, agent_version FROM shardmaster_agent.master", &[])?;
    let shard = connection.shard();
    let Some([Some(known), Some(version)]) = rows.rows.first().map(Vec::as_slice) else { return Ok(()) };
    if known != identity {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("shard \"{shard}\" belongs to another master"),
            format!(
                "If this master replaces the other one, and the other one is gone for good, run SELECT shard_adopt({}).",
                quote::literal(shard)
            ),
        ));
    }
    if *version != VERSION.to_string() {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "the agent's schema on shard \"{shard}\" is of version {version}, and this master supports version {VERSION}"
            ),
            "Use the version of the extension that installed it until its splits have ended and its redirects have been dropped.",
        ));
    }
    Ok(())
}

/// Claims the database for this master, unless another master was first.
pub fn insert(connection: &mut Connection, identity: &str) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.master (identity, agent_version) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[Some(identity), Some(&VERSION.to_string())],
    )?;
    Ok(())
}

/// Gives the database to another master.
pub fn adopt(connection: &mut Connection, identity: &str) -> Result<()> {
    connection.query("UPDATE shardmaster_agent.master SET identity = $1", &[Some(identity)])?;
    Ok(())
}
