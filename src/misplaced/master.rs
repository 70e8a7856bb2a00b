//! Whether a shard knows a decision that this master does not: a master that was restored, or is a copy, has routes
//! that are older than the rows, and what it takes for misplaced may be in its right place.

use super::error;
use crate::agent::error::SplitError;
use crate::agent::session;
use crate::agent::state::{self, key_list, master, moved_keys, side};
use crate::catalog::caller::Caller;
use crate::catalog::{shard, split};
use crate::error::Failure;
use crate::remote::Connection;
use std::time::Duration;

/// Checks this as the mover, which alone may read what splits have left there.
pub fn require(shard_key: &str, timeout: Duration) -> Result<(), Failure> {
    Caller::as_owner(|_| {
        let mut connection = session::open_within(&shard::by_key(shard_key)?, "misplaced rows", timeout)?;
        match look(&mut connection) {
            // The last split there has ended meanwhile, and has dropped the schema.
            Err(SplitError::Remote(error)) if state::is_gone(&error) => Ok(()),
            Err(error) => Err(error.into_failure()),
            Ok(Some(split)) => Err(error::unplanned_split(shard_key, split)),
            Ok(None) => Ok(()),
        }
    })
}

/// Returns a split there that this master has not planned.
fn look(connection: &mut Connection) -> Result<Option<i64>, SplitError> {
    if !state::has(connection, "master")? {
        return Ok(None);
    }
    master::check(connection, &split::identity())?;
    let mut splits: Vec<i64> = side::all(connection)?.into_iter().map(|side| side.id).collect();
    for redirect in key_list::redirects(connection)? {
        splits.extend(moved_keys::splits(connection, &redirect)?.into_iter().map(|(split, _)| split));
    }
    Ok(split::unknown_of(&splits))
}
