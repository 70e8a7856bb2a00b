//! What the servers say of where a shard is: which database it is.

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
