//! Orphans: what sets of a lost master have left on a shard. This runs in the session of the operator.

use super::{install, kept};
use crate::agent::error::{Result, SplitError};
use crate::agent::reference::sequence;
use crate::agent::state::{self, master};
use crate::agent::{schema, session};
use crate::catalog::shard::{self, Shard};
use crate::catalog::{reference, split};
use crate::error::Failure;
use crate::remote::Connection;

/// Returns what was found on the shard that this master does not know, and what was done with it.
pub fn run(shard_key: &str) -> std::result::Result<Vec<(String, String)>, Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut session = session::open(&shard, "cleanup")?;
    orphans(&mut session, &shard).map_err(SplitError::into_failure)
}

fn orphans(session: &mut Connection, at: &Shard) -> Result<Vec<(String, String)>> {
    master::check(session, &split::identity())?;
    let mut removed = Vec::new();
    let found = state::ask(
        session,
        "reference_copy",
        "SELECT set_id, token FROM shardmaster_agent.reference_copy
         UNION SELECT set_id, token FROM shardmaster_agent.reference_origin ORDER BY 1",
        &[],
    )?;
    for row in found.rows {
        let [Some(id), Some(token)] = row.as_slice() else { continue };
        let Ok(id) = id.parse::<i64>() else { continue };
        if reference::is_known(token) {
            continue;
        }
        let outcome = match kept::another_origin(session, at, id)? {
            Some(why) => why,
            None => {
                remove(session, id)?;
                "removed".to_owned()
            }
        };
        removed.push((format!("reference tables {id}"), outcome));
    }
    Ok(removed)
}

fn remove(session: &mut Connection, id: i64) -> Result<()> {
    install::remove_others(session, id, &[])?;
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    session.run(&format!(
        "DROP SEQUENCE IF EXISTS shardmaster_agent.{};
         DELETE FROM shardmaster_agent.reference_copy WHERE set_id = {id};
         DELETE FROM shardmaster_agent.reference_origin WHERE set_id = {id}",
        sequence(id)
    ))?;
    schema::drop_unused(session)?;
    session.run("COMMIT")?;
    Ok(())
}
