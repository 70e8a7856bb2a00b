//! Which run of this server it is.

use super::sql;

/// This run of this server: what it has committed it knows, as long as it is the same.
pub fn current() -> String {
    sql::read_one(
        "SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()),
                          substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
                          extract(epoch FROM pg_postmaster_start_time()))",
        &[],
        |row| row.get::<String>(1),
    )
    .flatten()
    .unwrap_or_default()
}
