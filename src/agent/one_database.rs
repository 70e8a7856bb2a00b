//! Whether two shards are one database.

use super::error::Result;
use super::session;
use crate::catalog::shard::Shard;
use crate::guc;
use crate::remote::{Connection, RemoteError};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// For each host on the way to a shard, and for a few short questions then. Who asks may be at a
/// terminal, and what one of the shards does not answer is no answer of the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether two shards are one database of one running server. Locks say so: neither the
/// connection strings nor what a database knows of itself, which copies of a disk share, do.
pub fn is_one_database(one: &Shard, other: &Shard) -> Result<bool> {
    let mut here = open(one, patience())?;
    shares_locks(&mut here, other)
}

/// The same where the first has a session already. Its server has the last word: the other one
/// cannot pretend to be it, since the number is not the other's and the lock is looked for here.
pub fn shares_locks(here: &mut Connection, other: &Shard) -> Result<bool> {
    shares_locks_within(here, other, patience())
}

/// The same where nobody waits for the other one for long.
pub fn shares_locks_within(here: &mut Connection, other: &Shard, limit: Duration) -> Result<bool> {
    share_locks_within(here, &mut open(other, limit)?, limit)
}

/// The same where both have one, in no transaction.
pub fn share_locks(here: &mut Connection, there: &mut Connection) -> Result<bool> {
    share_locks_within(here, there, patience())
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

fn patience() -> Duration {
    guc::remote_timeout().min(PATIENCE)
}

fn open(shard: &Shard, limit: Duration) -> Result<Connection> {
    Ok(session::open_within(shard, "comparison of places", limit)?)
}

fn ask(here: &mut Connection, there: &mut Connection) -> Result<bool> {
    // Neither shard says which: who knows the number of an advisory lock can hold it, or have
    // somebody wait who has it.
    let number = random();
    let take = format!("SELECT pg_catalog.pg_try_advisory_xact_lock({number})");
    // For a transaction, so that a pooler keeps nothing of it.
    if there.run(&format!("BEGIN; {take}"))?.scalar() != Some("t") {
        let text = "it does not give away an advisory lock that nobody can have";
        return Err(RemoteError::connection(there.shard(), text).into());
    }
    let answer = here.run(&take);
    // Whatever has come of it: the session may be used on.
    there.run("ROLLBACK")?;
    Ok(answer?.scalar() == Some("f"))
}

/// Of the keys with which this process makes its maps hard to guess.
fn random() -> i64 {
    i64::from_ne_bytes(RandomState::new().hash_one(Instant::now()).to_ne_bytes())
}
