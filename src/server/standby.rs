//! Commits on a master with a synchronous standby. Such a commit is on the master's own disk first and then waits for
//! the standby, for ever if that is away. Clients that a cutover blocks wait for it at most until the cutover's
//! deadline.

use super::{sql, txn, wait};
use pgrx::pg_sys;
use std::ffi::c_int;
use std::time::Instant;

/// Whether a synchronous standby, if the server has one, is known to have a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standby {
    HasIt,
    /// The standby did not confirm it in time. The commit stands.
    Unknown,
}

/// Makes the commit of the current transaction wait for no standby. This is for what the shards know as well, or what
/// the next worker repeats if a failover has lost it.
pub fn commit_alone() {
    sql::write("SET LOCAL synchronous_commit = local", &[]);
}

/// Makes the transaction's writes survive a crash of the master, whatever the caller's settings are.
pub fn commit_durably() {
    sql::write(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)
          WHERE pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY ('{off,local}')",
        &[],
    );
}

/// Runs the body in a transaction that waits neither for locks nor for a synchronous standby past the deadline.
/// Returns None if a lock was not granted, and nothing is done.
pub fn by<R, E>(deadline: Instant, body: impl FnOnce() -> Result<R, E>) -> Option<Result<(R, Standby), E>> {
    let left = || deadline.saturating_duration_since(Instant::now()).as_millis().max(1);
    let said = wait::status_scope();
    let mut standby = Standby::HasIt;
    let done = txn::unless_locked_with(
        || {
            sql::write(&format!("SET LOCAL lock_timeout = '{}ms'", left()), &[]);
            sql::write("SET LOCAL synchronous_commit = on", &[]);
            body()
        },
        || {
            if has_standby() {
                wait::report("the synchronous standby of the master");
            }
            // A commit that was only late waited for no standby if there is none.
            let in_time = commit_within(c_int::try_from(left()).unwrap_or(c_int::MAX));
            standby = if has_standby() { in_time } else { Standby::HasIt };
        },
    );
    drop(said);
    done.map(|done| done.map(|value| (value, standby)))
}

fn has_standby() -> bool {
    // SAFETY: this is a setting of the server, NULL or NUL-terminated.
    unsafe { !pg_sys::SyncRepStandbyNames.is_null() && *pg_sys::SyncRepStandbyNames != 0 }
}

/// `STATEMENT_TIMEOUT` of the server's enum, the same in all supported versions. The server registers it for every
/// process that is connected to a database, and only its main loop for clients ever uses it.
const STATEMENT_TIMEOUT: c_int = 3;

unsafe extern "C-unwind" {
    fn enable_timeout_after(id: c_int, milliseconds: c_int);
    fn disable_timeout(id: c_int, keep_indicator: bool);
    fn get_timeout_indicator(id: c_int, reset_indicator: bool) -> bool;
}

/// Commits. The time-out cancels the wait for a standby, which the server answers with a warning: the transaction has
/// committed. If it comes earlier, it is an error like any other.
fn commit_within(milliseconds: c_int) -> Standby {
    // SAFETY: this is a background worker that is connected to a database, with a transaction open; these are plain
    // variables of this process. A cancel that came when the wait was over is ours, too.
    unsafe {
        enable_timeout_after(STATEMENT_TIMEOUT, milliseconds);
        pg_sys::CommitTransactionCommand();
        disable_timeout(STATEMENT_TIMEOUT, true);
        if !get_timeout_indicator(STATEMENT_TIMEOUT, true) {
            return Standby::HasIt;
        }
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
        Standby::Unknown
    }
}
