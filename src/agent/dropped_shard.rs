//! Removal of what is left on a shard of the splits that it took part in, when the shard is dropped.

use crate::agent::error::{Result, SplitError};
use crate::agent::state;
use crate::agent::state::reference_ended;
use crate::agent::state::{decision, master};
use crate::agent::state::{key_list, moved_keys};
use crate::agent::{schema, session};
use crate::catalog::shard::Shard;
use crate::catalog::split;
use std::time::{Duration, Instant};

/// The limit after which a dropped shard that is lost is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Removes what this master has noted there for the shard's namespace, and the schema with the last of it. What
/// belongs to another master stays. Returns the splits whose redirects stay; the splits that this master knows have
/// none by now.
pub fn leave(shard: &Shard) -> Result<Vec<i64>> {
    let mut connection = session::open_within(shard, "drop", LONGEST_WAIT)?;
    connection.set_deadline(Some(Instant::now() + LONGEST_WAIT));
    if !state::has(&mut connection, "decision")? && !state::has(&mut connection, "reference_ended")? {
        return Ok(Vec::new());
    }
    match master::check(&mut connection, &split::identity()) {
        Err(SplitError::Failed(_)) => return Ok(Vec::new()),
        other => other?,
    }
    schema::remove(&mut connection, |connection| {
        decision::forget(connection, &shard.namespace)?;
        reference_ended::forget(connection, &shard.namespace)
    })?;
    let mut redirected = Vec::new();
    for redirect in
        key_list::redirects(&mut connection)?.iter().filter(|one| one.namespace == shard.namespace)
    {
        redirected.extend(moved_keys::splits(&mut connection, redirect)?.into_iter().map(|(split, _)| split));
    }
    Ok(redirected)
}
