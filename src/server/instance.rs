//! The current run of this server.

use super::sql;

/// Returns an identity of this run of this server: while it stays the same, the server knows what it has committed.
pub fn current() -> String {
    sql::read_optional::<String>(
        "SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()),
                          substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
                          extract(epoch FROM pg_postmaster_start_time()))",
        &[],
    )
    .unwrap_or_default()
}
