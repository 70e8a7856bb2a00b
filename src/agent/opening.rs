//! The first message of a session of a split; it is one message to save round trips.

use super::catalogs;
use super::session_hash;
use crate::agent::foreign_objects;
use crate::guc;
use crate::remote::{Connection, RemoteError, quote};
use std::time::Duration;

/// The settings that every session pins: neither those of a role or a database nor those of a server change how rows
/// are read or written, or end a session early.
const PINNED: &str = "
    SET role = 'none'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
    SET extra_float_digits = 3; SET bytea_output = 'hex'; SET client_encoding = 'UTF8';
    SET lc_monetary = 'C'; SET array_nulls = on; SET xmlbinary = 'base64'; SET xmloption = 'content';
    SET standard_conforming_strings = on; SET backslash_quote = safe_encoding; SET search_path = pg_catalog, pg_temp;
    SET row_security = off; SET synchronous_commit = on; SET statement_timeout = 0; SET exit_on_error = off;
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 14000;
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
    SET default_transaction_deferrable = off; SET quote_all_identifiers = off;
    SET transform_null_equals = off; SET gin_fuzzy_search_limit = 0; SET default_table_access_method = 'heap';
    SET check_function_bodies = on; SET jit = off; SET plan_cache_mode = force_generic_plan;
    SET client_min_messages = error";

/// The time that a session waits for a lock of a row or a table, unless a transaction sets another one.
pub const LOCK_TIMEOUT: &str = "2s";

/// Pinned settings that need a server version, with that version.
const PINNED_SINCE: [(i32, &str); 2] = [
    // A server that works for a client that is gone stops within a second.
    (140_000, "SET client_connection_check_interval = '1s'; SET idle_session_timeout = 0"),
    (170_000, "SET transaction_timeout = 0"),
];

/// SQL expression that identifies a running server. It is in the last answer and shows whether two sessions are on one
/// server.
const INSTANCE: &str =
    "(SELECT system_identifier || ' ' || pg_postmaster_start_time() FROM pg_control_system())";
/// SQL expression: whether the session has begun with a secret. A pooler may drop options silently. The hash is
/// compared, which the shard stores.
const KNOWS: &str =
    "encode(sha256(convert_to(current_setting('shardmaster_agent.mover', true), 'UTF8')), 'hex')";

/// The purpose of a session.
#[derive(Default)]
pub struct Opening<'a> {
    /// The token by which the shard knows the split whose secret the session should have. `None` if it has no secret.
    pub token: Option<&'a str>,
    /// The session writes without firing triggers.
    pub replica: bool,
    /// The session hashes keys.
    pub hashes: bool,
}

/// The answer of the shard.
pub struct OpenedSession {
    /// Whether the session has the secret.
    pub knows: bool,
    /// The schema of the extension on the shard, if the session should use its hash.
    pub installed: Option<String>,
}

/// How long a transaction that sends nothing keeps its locks on a shard, after its worker was stopped or its
/// connection was lost silently. A worker that is busy on the other side sends signs of life meanwhile.
pub fn idle_limit() -> Duration {
    const LEAST: Duration = Duration::from_secs(5);
    const MOST: Duration = Duration::from_secs(24 * 3600);
    guc::remote_timeout().saturating_mul(3).clamp(LEAST, MOST)
}

impl Opening<'_> {
    /// `is_known`: a session of this process has found nothing unexpected in the agent's schema a moment ago.
    fn message(&self, version: i32, is_known: bool) -> String {
        let mut parts = vec![PINNED.to_owned()];
        parts.push(format!("SET lock_timeout = '{LOCK_TIMEOUT}'"));
        parts.push(format!("SET idle_in_transaction_session_timeout = {}", idle_limit().as_millis()));
        let since = PINNED_SINCE.iter().filter(|(since, _)| version >= *since);
        parts.extend(since.map(|(_, settings)| (*settings).to_owned()));
        if self.replica {
            parts.push("SET session_replication_role = replica".to_owned());
        }
        if self.hashes {
            parts.push(session_hash::of_agent());
        }
        // The agent's schema is checked under the settings that precede it. If it cannot be trusted, the session ends,
        // and the settings with it.
        parts.push(catalogs::AS_WRITTEN.to_owned());
        let knows =
            self.token.map_or("NULL".to_owned(), |token| format!("{KNOWS} = {}", quote::literal(token)));
        let instance = if self.token.is_some() { INSTANCE } else { "NULL" };
        let installed = if self.hashes { session_hash::INSTALLED } else { "NULL" };
        let stranger = if is_known { "NULL" } else { foreign_objects::STRANGER };
        parts.push(format!(
            "SELECT {stranger}, {}, {knows}, {instance}, ({installed})",
            foreign_objects::SCHEMA
        ));
        parts.join(";\n")
    }

    /// Begins a session with this message.
    pub fn begin(&self, connection: &mut Connection) -> Result<OpenedSession, RemoteError> {
        let is_known = foreign_objects::is_known(connection.shard());
        let rows = connection.run(&self.message(connection.server_version(), is_known))?.rows;
        let mut cells = rows.into_iter().next().unwrap_or_default().into_iter();
        let mut cell = || cells.next().flatten();
        let (stranger, schema, knows, instance, installed) = (cell(), cell(), cell(), cell(), cell());
        match (is_known, stranger) {
            (true, _) => foreign_objects::require_same(connection, schema)?,
            (false, None) => foreign_objects::keep(connection.shard(), schema),
            (false, Some(_)) => foreign_objects::refuse(connection)?,
        }
        connection.set_instance(instance);
        connection.keep_alive(idle_limit() / 4);
        Ok(OpenedSession { knows: knows.as_deref() == Some("t"), installed })
    }
}
