//! Sessions of a split on its shards, and the generation that says whose they are.

use super::error::{Result, SplitError};
use super::{place, session_hash, strangers};
use crate::catalog::shard::Shard;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::{Connection, RemoteError, conninfo};
use crate::server::wait;
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::CStr;
use std::time::Duration;

/// Which end of a split a session is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Target,
}

impl Side {
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Target => "target",
        }
    }
}

/// What every session pins: neither the settings of a role or a database nor those
/// of a server change how rows are read or written, or end a session early.
const PINNED: &str = "
    SET role = 'none'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
    SET extra_float_digits = 3; SET bytea_output = 'hex'; SET client_encoding = 'UTF8';
    SET lc_monetary = 'C'; SET array_nulls = on; SET xmlbinary = 'base64'; SET xmloption = 'content';
    SET standard_conforming_strings = on; SET backslash_quote = safe_encoding; SET search_path = pg_catalog, pg_temp;
    SET row_security = off; SET synchronous_commit = on; SET lock_timeout = '2s';
    SET statement_timeout = 0; SET exit_on_error = off;
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 14000;
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
    SET default_transaction_deferrable = off; SET quote_all_identifiers = off;
    SET transform_null_equals = off; SET gin_fuzzy_search_limit = 0; SET default_table_access_method = 'heap';
    SET check_function_bodies = on; SET jit = off; SET plan_cache_mode = force_generic_plan;
    SET client_min_messages = error";

/// What a transaction is worth that nothing comes for: a worker that is stopped in it, or a link
/// that is gone without a word, keeps its locks on a shard for no longer. One that works on the
/// other side meanwhile gives signs of life.
fn idle_limit() -> Duration {
    const LEAST: Duration = Duration::from_secs(5);
    const MOST: Duration = Duration::from_secs(24 * 3600);
    guc::remote_timeout().saturating_mul(3).clamp(LEAST, MOST)
}

/// The same, with the version that brought each.
const PINNED_SINCE: [(i32, &str); 2] = [
    // A server that works for a client that is gone stops within a second.
    (140_000, "SET client_connection_check_interval = '1s'; SET idle_session_timeout = 0"),
    (170_000, "SET transaction_timeout = 0"),
];

/// How a shard is reached, as libpq's keywords. `purpose` shows in pg_stat_activity.
pub fn parameters(shard: &Shard, purpose: &str) -> Vec<(String, String)> {
    let seconds = guc::remote_timeout().as_secs().max(2).to_string();
    let name = format!("shardmaster {purpose}");
    let mut params: Vec<(&str, &str)> = vec![
        ("connect_timeout", &seconds),
        // A link that is gone is noticed within 15 seconds.
        ("keepalives_idle", "5"),
        ("keepalives_interval", "3"),
        ("keepalives_count", "3"),
        ("tcp_user_timeout", "14000"),
    ];
    let local = LocalEndpoint::current();
    // A name with an equals sign in it would be taken for a connection string.
    let local_database = format!("dbname={}", conninfo::quote(&local.database));
    match &shard.conninfo {
        // libpq expands a connection string given as dbname where it stands, so
        // what stands before it are defaults and what follows is pinned.
        Some(conninfo) => params.push(("dbname", conninfo)),
        None => params.extend([
            ("host", local.socket_dir.as_str()),
            ("port", local.port.as_str()),
            ("dbname", local_database.as_str()),
            ("user", local.user.as_str()),
        ]),
    }
    params.push(("application_name", &name));
    params.push(("client_encoding", "UTF8"));
    params.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// A session with the pinned settings. `purpose` shows in pg_stat_activity.
pub fn open(shard: &Shard, purpose: &str) -> std::result::Result<Connection, RemoteError> {
    open_by(shard, &parameters(shard, purpose), guc::remote_timeout())
}

/// The same with a shard that is not waited for as long as others.
pub fn open_within(
    shard: &Shard,
    purpose: &str,
    limit: Duration,
) -> std::result::Result<Connection, RemoteError> {
    open_by(shard, &parameters(shard, purpose), limit.min(guc::remote_timeout()))
}

thread_local! {
    static PATIENCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Work for which nobody waits, and which would keep other such work waiting: no answer is waited
/// for longer than some seconds by the sessions that it opens. More with each attempt in vain, and
/// each fourth time as long as by others, so that a shard that is slow is looked after, too.
pub fn hastily<R>(attempts: i32, work: impl FnOnce() -> R) -> R {
    let seconds = [Some(3), Some(6), Some(12), None];
    let turn = usize::try_from(attempts.rem_euclid(4)).unwrap_or(0);
    PATIENCE.set(seconds[turn].map(Duration::from_secs));
    let done = work();
    PATIENCE.set(None);
    done
}

fn open_by(
    shard: &Shard,
    params: &[(String, String)],
    timeout: Duration,
) -> std::result::Result<Connection, RemoteError> {
    let params: Vec<(&str, &str)> =
        params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let timeout = PATIENCE.get().map_or(timeout, |patience| patience.min(timeout));
    let _said = wait::said();
    wait::report(&format!("connecting to shard \"{}\"", shard.shard_key));
    let mut connection = Connection::open(&shard.shard_key, &params, timeout)?;
    let version = connection.server_version();
    let since = PINNED_SINCE.iter().filter(|(since, _)| version >= *since).map(|(_, settings)| *settings);
    // In one message: each answer is a way there and back. What is in the agent's schema is asked
    // under the settings that stand before it, and where it is not to be trusted, the session
    // goes with them.
    let limit = format!("SET idle_in_transaction_session_timeout = {}", idle_limit().as_millis());
    let opening: Vec<&str> =
        [PINNED, &limit].into_iter().chain(since).chain([strangers::LOOK.as_str()]).collect();
    if connection.run(&opening.join(";\n"))?.scalar().is_some() {
        strangers::refuse(&mut connection)?;
    }
    connection.keep_alive(idle_limit() / 4);
    place::learn(&mut connection, shard);
    Ok(connection)
}

/// This very database, over the server's own socket.
struct LocalEndpoint {
    socket_dir: String,
    port: String,
    database: String,
    user: String,
}

impl LocalEndpoint {
    fn current() -> LocalEndpoint {
        // SAFETY: settings of the server, set before any backend starts and not
        // changed while it lives.
        let (directories, port) = unsafe {
            let directories = if pg_sys::Unix_socket_directories.is_null() {
                String::new()
            } else {
                CStr::from_ptr(pg_sys::Unix_socket_directories).to_string_lossy().into_owned()
            };
            (directories, pg_sys::PostPortNumber)
        };
        let socket_dir = directories.split(',').next().unwrap_or_default().trim().to_owned();
        LocalEndpoint {
            socket_dir: if socket_dir.is_empty() { "localhost".to_owned() } else { socket_dir },
            port: port.to_string(),
            database: crate::server::database::name(),
            user: guc::local_user().unwrap_or_else(crate::catalog::local::owner),
        }
    }
}

/// A session that has the mover's secret. No log of statements holds what a session begins
/// with; where that is not ours alone to say, the secret is told by a statement.
fn open_known(shard: &Shard, purpose: &str, plan: &Plan) -> Result<Connection> {
    let secret = &plan.secret;
    let mut params = parameters(shard, purpose);
    if let Some(options) = own_options(shard) {
        params.push(("options".to_owned(), format!("{options} -c shardmaster_agent.mover={secret}")));
        match open_by(shard, &params, guc::remote_timeout()) {
            // A pooler in between.
            Err(error) if error.message.contains("unsupported startup parameter") => {
                params.truncate(params.len() - 1)
            }
            outcome => {
                let mut connection = outcome?;
                if !knows(&mut connection, plan)? {
                    tell(&mut connection, secret)?;
                }
                return Ok(connection);
            }
        }
    }
    let mut connection = open_by(shard, &params, guc::remote_timeout())?;
    tell(&mut connection, secret)?;
    Ok(connection)
}

/// Whether a session has begun with the secret: a pooler may leave options out without a word.
/// Asked by the hash, which the shard stores.
fn knows(connection: &mut Connection, plan: &Plan) -> Result<bool> {
    let known = connection.query(
        "SELECT encode(sha256(convert_to(current_setting('shardmaster_agent.mover', true), 'UTF8')), 'hex') = $1",
        &[Some(&plan.token)],
    )?;
    Ok(known.scalar() == Some("t"))
}

fn tell(connection: &mut Connection, secret: &str) -> Result<()> {
    connection.query("SELECT set_config('shardmaster_agent.mover', $1, false)", &[Some(secret)])?;
    Ok(())
}

/// What a shard's own connection string has for options; None: a service or the environment
/// may have some, which libpq would not read beside ours.
fn own_options(shard: &Shard) -> Option<String> {
    if ["PGSERVICE", "PGOPTIONS"].iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let Some(text) = &shard.conninfo else { return Some(String::new()) };
    let conninfo = conninfo::Conninfo::parse(text).ok()?;
    conninfo.get("service").is_none().then(|| conninfo.get("options").unwrap_or_default().to_owned())
}

/// A session that the capture triggers let pass and that carries out steps.
pub fn open_mover(plan: &Plan, side: Side, purpose: &str) -> Result<Connection> {
    let shard = match side {
        Side::Source => &plan.source,
        Side::Target => &plan.target,
    };
    let purpose = format!("split {} {purpose}", plan.id);
    let mut connection = open_known(shard, &purpose, plan)?;
    if plan.scope.strategy().buckets().is_some() {
        session_hash::set_up(&mut connection)?;
    }
    if side == Side::Target {
        connection.run("SET session_replication_role = replica").map_err(explain_replica)?;
    }
    Ok(connection)
}

fn explain_replica(mut error: RemoteError) -> RemoteError {
    if error.is("42501") {
        error.hint = Some(
            "On the target, a superuser grants it: GRANT SET ON PARAMETER session_replication_role TO the mover's role."
                .to_owned(),
        );
    }
    error
}

/// Both sessions are on one running server. After a failover one of them may still talk to
/// the old primary, which knows nothing of what is written to the new one.
pub fn require_one_server(one: &mut Connection, other: &mut Connection) -> Result<()> {
    const INSTANCE: &str =
        "SELECT system_identifier || ' ' || pg_postmaster_start_time() FROM pg_control_system()";
    one.send(INSTANCE)?;
    let there = other.run(INSTANCE)?;
    let here = one.finish()?;
    if here.scalar() == there.scalar() {
        return Ok(());
    }
    Err(SplitError::Retry(format!(
        "shard \"{}\": two sessions are on two servers, one of them an old primary",
        one.shard()
    )))
}
