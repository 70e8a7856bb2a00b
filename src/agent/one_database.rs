//! Whether two shards are one database.

use super::error::Result;
use super::session;
use crate::catalog::shard::Shard;
use crate::guc;
use crate::remote::{Connection, RemoteError};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// The limit for each host of a connection string, and for a few short questions afterwards. An operator may wait at a
/// terminal, and a shard that does not answer does not speak for the other one.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Whether two shards are one database of one running server. Locks say so: neither the
/// connection strings nor what a database knows of itself, which copies of a disk share, do.
pub fn is_one_database(one: &Shard, other: &Shard) -> Result<bool> {
    let mut here = open(one, longest_wait())?;
    shares_locks(&mut here, other)
}

/// Whether another shard is in the database of this session. The session's own server decides: the other one cannot
/// pretend to be it, since it does not choose the number, and the lock is tried here.
pub fn shares_locks(here: &mut Connection, other: &Shard) -> Result<bool> {
    shares_locks_within(here, other, longest_wait())
}

/// Whether another shard is in the database of this session; the other shard is waited for no longer than `limit`.
pub fn shares_locks_within(here: &mut Connection, other: &Shard, limit: Duration) -> Result<bool> {
    share_locks_within(here, &mut open(other, limit)?, limit)
}

/// Whether two sessions, both outside a transaction, are in one database.
pub fn share_locks(here: &mut Connection, there: &mut Connection) -> Result<bool> {
    share_locks_within(here, there, longest_wait())
}

fn share_locks_within(here: &mut Connection, there: &mut Connection, limit: Duration) -> Result<bool> {
    let until = Instant::now() + limit;
    there.set_deadline(Some(until));
    here.set_deadline(Some(until));
    let answer = ask(here, there);
    here.set_deadline(None);
    there.set_deadline(None);
    answer
}

fn longest_wait() -> Duration {
    guc::remote_timeout().min(LONGEST_WAIT)
}

fn open(shard: &Shard, limit: Duration) -> Result<Connection> {
    Ok(session::open_within(shard, "comparison of places", limit)?)
}

fn ask(here: &mut Connection, there: &mut Connection) -> Result<bool> {
    // The number is random, not a shard's: a shard that knew the number of an advisory lock could hold it, or make its
    // holder wait.
    let number = random();
    let take = format!("SELECT pg_catalog.pg_try_advisory_xact_lock({number})");
    // The lock is held for a transaction, so that a pooler keeps nothing of it.
    if there.run(&format!("BEGIN; {take}"))?.scalar() != Some("t") {
        let text = "it does not give away an advisory lock that nobody can have";
        return Err(RemoteError::connection(there.shard(), text).into());
    }
    let answer = here.run(&take);
    // This ends the transaction in any case: the session may be used further.
    there.run("ROLLBACK")?;
    Ok(answer?.scalar() == Some("f"))
}

/// Returns a random number, made of the keys with which this process makes its maps hard to guess.
fn random() -> i64 {
    i64::from_ne_bytes(RandomState::new().hash_one(Instant::now()).to_ne_bytes())
}
