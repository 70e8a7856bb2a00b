//! The rows that a batch takes. They are listed once, by their places in the table, and the shard keeps the list:
//! searching for the next ones anew would pass all deleted ones again and again. A row that has another place by its
//! turn is left for the next list.

use crate::error::Failure;
use crate::misplaced::session::MoveSession;
use crate::misplaced::statements::{self, Chosen};
use crate::misplaced::table_pair::MovedTable;
use crate::remote::RemoteError;
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of rows of a batch, if they do not have to move together.
const MOST: u32 = 2000;

/// Lists all rows of the keys that exist now.
pub fn list(
    here: &mut MoveSession,
    pair: &MovedTable,
    keys: &[String],
    timeout: Duration,
) -> Result<(), Failure> {
    here.patient_for(timeout);
    Ok(here.connection.run_unbounded(&statements::list(pair, keys)).map(drop)?)
}

/// Returns the next ones of the list, or None at its end, when it is dropped. `keys`: the keys that it was made of, in
/// order.
pub fn next(here: &mut MoveSession, keys: &[String], timeout: Duration) -> Result<Option<Chosen>, Failure> {
    here.patient_for(timeout);
    let found = here.connection.run(&statements::next_listed(MOST))?;
    let (mut of, mut parts, mut places) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let mut is_known = true;
    for row in found.rows {
        let Ok([part, place, key]) = <[Option<String>; 3]>::try_from(row) else {
            return Err(RemoteError::unreadable(here.connection.shard(), "its list of rows").into());
        };
        is_known = is_known && key.as_ref().is_some_and(|key| keys.binary_search(key).is_ok());
        of.extend(key);
        parts.extend(part);
        places.extend(place);
    }
    if places.is_empty() {
        here.connection.run(statements::END_LIST)?;
        return Ok(None);
    }
    // A key that the column writes differently from the request may be any of them.
    let keys = if is_known { of.into_iter().collect() } else { keys.to_vec() };
    Ok(Some(Chosen { keys, parts: parts.into_iter().collect(), places }))
}
