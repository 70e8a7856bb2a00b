//! Whether two shards are one database.

use super::error::Result;
use super::session;
use crate::catalog::shard::Shard;
use crate::guc;
use crate::remote::Connection;
use std::time::Duration;

/// Whether two shards are one database of one running server. Locks say so: neither the
/// connection strings nor what a database knows of itself, which copies of a disk share, do.
pub fn is_one_database(one: &Shard, other: &Shard) -> Result<bool> {
    let mut here = session::open(one, "comparison of places")?;
    shares_locks(&mut here, other)
}

/// The same where the first has a session already. Its server has the last word: the other one
/// cannot pretend to be it, since the number is not the other's and the lock is looked for here.
pub fn shares_locks(here: &mut Connection, other: &Shard) -> Result<bool> {
    shares_locks_within(here, other, guc::remote_timeout())
}

/// The same where nobody waits for the other one for long.
pub fn shares_locks_within(here: &mut Connection, other: &Shard, limit: Duration) -> Result<bool> {
    let mut there = session::open_within(other, "comparison of places", limit)?;
    // A random number: whoever knows the number of an advisory lock can hold it.
    let number = here.run("SELECT (pg_catalog.random() * 9e15)::pg_catalog.int8")?;
    let number = number.scalar().and_then(|number| number.parse::<i64>().ok()).unwrap_or_default();
    // For a transaction, so that a pooler keeps nothing of it.
    there.run(&format!("BEGIN; SELECT pg_catalog.pg_advisory_xact_lock({number})"))?;
    let taken = here.run(&format!("SELECT pg_catalog.pg_try_advisory_xact_lock({number})"))?;
    Ok(taken.scalar() == Some("f"))
}
