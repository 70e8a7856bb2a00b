//! What stays on a shard of the splits that it had a part in goes when the shard is dropped.

use super::error::{Result, SplitError};
use super::schema;
use super::session;
use super::state::{self, decision, master, reference_ended};
use crate::catalog::shard::Shard;
use crate::catalog::split;
use std::time::{Duration, Instant};

/// Whoever drops a shard that is lost waits for it no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes away what this master has noted there of the shard's namespace, and the schema with the last of it. What belongs to
/// another master stays.
pub fn leave(shard: &Shard) -> Result<()> {
    let mut connection = session::open_within(shard, "drop", PATIENCE)?;
    connection.set_deadline(Some(Instant::now() + PATIENCE));
    if !state::has(&mut connection, "decision")? && !state::has(&mut connection, "reference_ended")? {
        return Ok(());
    }
    match master::check(&mut connection, &split::identity()) {
        Err(SplitError::Failed(_)) => return Ok(()),
        other => other?,
    }
    connection.run("BEGIN")?;
    schema::bootstrap(&mut connection)?;
    decision::forget(&mut connection, &shard.namespace)?;
    reference_ended::forget(&mut connection, &shard.namespace)?;
    schema::drop_unused(&mut connection)?;
    connection.run("COMMIT")?;
    Ok(())
}
