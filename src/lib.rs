//! shardmaster: the control plane of a sharded system whose shards are ordinary PostgreSQL databases. See
//! `docs/internals/architecture.md`.

use pgrx::prelude::*;

mod agent;
mod api;
mod catalog;
mod clean;
mod derive;
mod error;
mod execution;
mod gateway;
mod guard;
mod guc;
mod import;
mod keychain;
mod keys;
#[cfg(test)]
mod layers;
mod lookups;
mod majors;
mod misplaced;
mod named_enum;
mod native;
mod numbers;
mod placement;
#[cfg(test)]
mod properties;
mod query;
mod reference;
mod remote;
mod report;
mod routing;
mod schema;

mod server;
mod snowflake;
mod split;
mod survey;
// These tests run inside a server. The test program of the pure tests links without one.
#[cfg(all(feature = "pg_test", not(test)))]
mod tests;
#[cfg(test)]
mod versions;
mod words;
mod worker;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/catalog.sql", name = "catalog", bootstrap);
extension_sql_file!("../sql/rows.sql", name = "rows", requires = ["catalog"]);
extension_sql_file!("../sql/shard_decision.sql", name = "shard_decision", requires = ["catalog"]);
extension_sql_file!("../sql/logins.sql", name = "logins", requires = ["catalog"]);
extension_sql_file!("../sql/execution.sql", name = "execution", requires = ["catalog"]);
extension_sql_file!("../sql/misplaced.sql", name = "misplaced", requires = ["catalog"]);
extension_sql_file!("../sql/number_block.sql", name = "number_block", requires = ["catalog"]);
extension_sql_file!("../sql/job.sql", name = "job", requires = ["catalog"]);
extension_sql_file!("../sql/standing.sql", name = "standing", requires = ["catalog"]);
extension_sql_file!("../sql/lookup.sql", name = "lookup", requires = ["catalog"]);
extension_sql_file!("../sql/placement.sql", name = "placement", requires = ["catalog"]);
extension_sql_file!("../sql/comments_worker.sql", name = "comments_worker", requires = [shard_status]);
extension_sql_file!("../sql/native_capture.sql", name = "native_capture", requires = ["catalog"]);
extension_sql_file!("../sql/access.sql", name = "access");
extension_sql_file!("../sql/grants.sql", name = "grants", finalize);

/// Lists what the library sets up when a server loads it.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    error::without_backtraces();
    guc::register();
    // A session that loads the library later cannot register what follows.
    if server::preload::at_start() {
        keychain::setter::register();
        keychain::redacted_log::register();
        keychain::redacted_statistics::register();
        placement::sweep_clock::register();
        routing::after_start::register();
        snowflake::register();
        worker::register();
    }
}
