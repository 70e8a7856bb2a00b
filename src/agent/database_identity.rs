//! What the servers know about the place of a shard: which database it is.

use crate::catalog::database_location;
use crate::catalog::database_location::ITSELF;
use crate::catalog::shard::Shard;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::with_lock_timeout;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Whether the database of a session is this very one, whatever its address is: the answering server is asked now. A
/// copy of the disk counts, too.
pub fn is_here(connection: &mut Connection, shard: &Shard, own: &str) -> Result<bool, RemoteError> {
    Ok(shard.conninfo.is_none() || connection.run(ITSELF)?.scalar() == Some(own))
}

/// Whether the mover's rights there reach this master's server: the shard is in this very database, or the mover is a
/// superuser in another one of its server.
pub fn is_masters(connection: &mut Connection, shard: &Shard, own: &str) -> Result<bool, RemoteError> {
    if is_here(connection, shard, own)? {
        return Ok(true);
    }
    let rows = connection.run(
        "SELECT c.system_identifier, pg_catalog.current_setting('is_superuser') FROM pg_catalog.pg_control_system() c",
    )?;
    let Some([Some(system), Some(is_superuser)]) = rows.rows.first().map(Vec::as_slice) else {
        return Err(RemoteError::connection(connection.shard(), "it does not report which server it is"));
    };
    Ok(own.split('/').next() == Some(system) && is_superuser != "off")
}

thread_local! {
    static LEARNED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records the identity of a shard's database. Each worker reads it once for each address, with the first session that
/// it has there. If it cannot read it, or cannot write it at once, the next worker does.
pub fn learn(connection: &mut Connection, shard: &Shard) {
    let Some(conninfo) = &shard.conninfo else { return };
    // SAFETY: these are plain variables of this process. A session's transaction may be read-only, and would keep a
    // row locked that others write.
    let may_write = unsafe { !pg_sys::MyBgworkerEntry.is_null() && !pg_sys::IsTransactionState() };
    if !may_write || LEARNED.with_borrow(|learned| learned.contains(conninfo)) {
        return;
    }
    let Ok(rows) = connection.run(ITSELF) else { return };
    let Some(identity) = rows.scalar() else { return };
    let written = with_lock_timeout(|| {
        database_location::learned(shard, identity);
        Ok::<_, super::error::SplitError>(())
    });
    if written.is_some() {
        LEARNED.with_borrow_mut(|learned| learned.insert(conninfo.clone()));
    }
}
