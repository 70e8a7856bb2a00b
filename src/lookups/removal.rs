//! What dropped lookup indexes have left on shards.

use super::session::LookupSessions;
use crate::agent::error::{Result, SplitError};
use crate::agent::state::{is_gone, master};
use crate::agent::{lookup as agent, session};
use crate::catalog::lookup::{self, Removal};
use crate::catalog::{shard, split};
use crate::clean;
use crate::error::Failure;
use crate::remote::Connection;
use crate::server::txn::{transaction, with_lock_timeout};

/// Removes one.
pub fn remove(sessions: &mut LookupSessions, identity: &str, removal: &Removal) -> Result<()> {
    let shard = transaction(|| shard::by_key(&removal.shard_key)).map_err(Failure::from)?;
    let connection = sessions.of(&shard)?;
    master::check(connection, identity)?;
    for known in agent::all(connection)?.into_iter().filter(|known| known.token == removal.token) {
        agent::remove(connection, known.capture)?;
    }
    with_lock_timeout(|| {
        lookup::removed(&removal.token, &removal.shard_key);
        Ok(())
    })
    .unwrap_or_else(|| Err(SplitError::Retry("a lock on what remains of the lookup index".into())))
}

/// Removes everything of lookup indexes that this master does not have; returns what was found and what was done with
/// it. It runs in the operator's session.
pub fn clean(shard_key: &str) -> std::result::Result<Vec<(String, String)>, Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut connection = session::open(&shard, "cleanup")?;
    match remove_unknown(&mut connection) {
        // The last one was removed meanwhile.
        Err(SplitError::Remote(error)) if is_gone(&error) => Ok(Vec::new()),
        removed => removed.map_err(SplitError::into_failure),
    }
}

fn remove_unknown(connection: &mut Connection) -> Result<Vec<(String, String)>> {
    master::check(connection, &split::identity())?;
    let mut removed = Vec::new();
    for known in agent::all(connection)? {
        if !lookup::is_known(&known.token) {
            agent::remove(connection, known.capture)?;
            removed
                .push((clean::printable(&format!("lookup index \"{}\"", known.name)), "removed".to_owned()));
        }
    }
    Ok(removed)
}
