//! What the servers say of where a shard is: which database it is, and whether two are one.

use super::error::Result;
use super::session;
use crate::catalog::place::{self, ITSELF};
use crate::catalog::shard::Shard;
use crate::remote::Connection;
use crate::server::txn::soon;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static LEARNED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Each worker asks once for each address, with the first session that it has there. What it
/// cannot learn, or not write down at once, the next one does.
pub fn learn(connection: &mut Connection, shard: &Shard) {
    let Some(conninfo) = &shard.conninfo else { return };
    // SAFETY: plain variables of this process. A session's transaction may be read-only, and
    // would keep a row locked that others write.
    let may_write = unsafe { !pg_sys::MyBgworkerEntry.is_null() && !pg_sys::IsTransactionState() };
    if !may_write || LEARNED.with_borrow(|learned| learned.contains(conninfo)) {
        return;
    }
    let Ok(rows) = connection.run(ITSELF) else { return };
    let Some(identity) = rows.scalar() else { return };
    let written = soon(|| {
        place::learned(shard, identity);
        Ok::<_, super::error::SplitError>(())
    });
    if written.is_some() {
        LEARNED.with_borrow_mut(|learned| learned.insert(conninfo.clone()));
    }
}

/// Whether two shards are one database of one running server. Locks say so: neither the
/// connection strings nor what a database knows of itself, which copies of a disk share, do.
pub fn is_one_database(one: &Shard, other: &Shard) -> Result<bool> {
    let mut here = session::open(one, "comparison of places")?;
    shares_locks(&mut here, other)
}

/// The same where the first has a session already. Its server has the last word: the other one
/// cannot pretend to be it, since the number is not the other's and the lock is looked for here.
pub fn shares_locks(here: &mut Connection, other: &Shard) -> Result<bool> {
    let mut there = session::open(other, "comparison of places")?;
    // By chance: everybody can hold a lock of a number that he knows.
    let number = here.run("SELECT (pg_catalog.random() * 9e15)::pg_catalog.int8")?;
    let number = number.scalar().and_then(|number| number.parse::<i64>().ok()).unwrap_or_default();
    // For a transaction, so that a pooler keeps nothing of it.
    there.run(&format!("BEGIN; SELECT pg_catalog.pg_advisory_xact_lock({number})"))?;
    let taken = here.run(&format!("SELECT pg_catalog.pg_try_advisory_xact_lock({number})"))?;
    Ok(taken.scalar() == Some("f"))
}
