//! Sessions of a split on its shards, and the generation that identifies their worker.

use super::credential;
use super::error::{Result, SplitError};
use super::opening::{OpenedSession, Opening};
use super::session_hash;
use crate::agent::database_identity;
use crate::catalog::shard::Shard;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::conninfo::{self, Conninfo};
use crate::remote::params::Params;
use crate::remote::{Connection, RemoteError};
use crate::server::wait::{self, WorkerStatus};
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::CStr;
use std::time::Duration;

/// The end of a split that a session is on.
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

    /// Returns the side of a name that a shard reports.
    pub fn named(name: &str) -> Side {
        if name == Side::Source.as_str() { Side::Source } else { Side::Target }
    }

    /// Returns what belongs to this side, of a pair that has the source's first.
    pub fn of<T>(self, [source, target]: [T; 2]) -> T {
        match self {
            Side::Source => source,
            Side::Target => target,
        }
    }

    pub fn shard(self, plan: &Plan) -> &Shard {
        self.of([&plan.source, &plan.target])
    }

    pub fn other(self) -> Side {
        self.of([Side::Target, Side::Source])
    }

    /// Returns what the names of a side's objects end with.
    pub(super) fn suffix(self) -> &'static str {
        self.of(["s", "t"])
    }
}

/// Returns the parameters to reach a shard, as libpq's keywords. `purpose` is shown in pg_stat_activity.
pub fn parameters(shard: &Shard, purpose: &str) -> std::result::Result<Params, RemoteError> {
    parameters_within(shard, purpose, None)
}

/// Returns these parameters, with a limit for what has to be run for the shard's credential.
pub fn parameters_within(
    shard: &Shard,
    purpose: &str,
    limit: Option<Duration>,
) -> std::result::Result<Params, RemoteError> {
    let limit = [limit, LONGEST_WAIT.get()].into_iter().flatten().min();
    let mut params = Params::default();
    params.push("connect_timeout", &guc::remote_timeout().as_secs().max(2).to_string());
    // This notices a lost connection within 15 seconds.
    params.push("keepalives_idle", "5");
    params.push("keepalives_interval", "3");
    params.push("keepalives_count", "3");
    params.push("tcp_user_timeout", "14000");
    match &shard.conninfo {
        // libpq expands a connection string given as dbname at its position: parameters before it are defaults, and
        // those after it are pinned.
        Some(conninfo) => {
            let credential = credential::of(shard, conninfo, limit)?;
            credential.push_defaults(&mut params);
            params.push("dbname", conninfo);
            credential.push_secrets(&mut params)?;
        }
        None => {
            let local = LocalEndpoint::current();
            params.push("host", &local.socket_dir);
            params.push("port", &local.port);
            // A plain name with an equals sign in it would be read as a connection string.
            params.push("dbname", &format!("dbname={}", conninfo::quote(&local.database)));
            params.push("user", &local.user);
        }
    }
    params.push("application_name", &format!("shardmaster {purpose}"));
    params.push("client_encoding", "UTF8");
    Ok(params)
}

/// Opens a session with the pinned settings. `purpose` is shown in pg_stat_activity.
pub fn open(shard: &Shard, purpose: &str) -> std::result::Result<Connection, RemoteError> {
    let opening = Opening::default();
    open_by(shard, &parameters(shard, purpose)?, guc::remote_timeout(), &opening).map(|(session, _)| session)
}

/// Opens a session with a shard that is waited for no longer than `limit`.
pub fn open_within(
    shard: &Shard,
    purpose: &str,
    limit: Duration,
) -> std::result::Result<Connection, RemoteError> {
    let params = parameters_within(shard, purpose, Some(limit))?;
    let limit = limit.min(guc::remote_timeout());
    open_by(shard, &params, limit, &Opening::default()).map(|(session, _)| session)
}

thread_local! {
    static LONGEST_WAIT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs work that no caller waits for, and that must not delay other such work: its sessions wait for an answer only
/// some seconds. The limit grows with each failed attempt, and each fourth attempt has the usual limit, so that a slow
/// shard is served, too.
pub fn with_connect_timeout<R>(attempts: i32, work: impl FnOnce() -> R) -> R {
    let seconds = [Some(3), Some(6), Some(12), None];
    let turn = usize::try_from(attempts.rem_euclid(4)).unwrap_or(0);
    LONGEST_WAIT.set(seconds[turn].map(Duration::from_secs));
    let done = work();
    LONGEST_WAIT.set(None);
    done
}

/// Whether such work is running, with shorter limits.
pub fn has_connect_timeout() -> bool {
    LONGEST_WAIT.get().is_some()
}

fn open_by(
    shard: &Shard,
    params: &Params,
    timeout: Duration,
    opening: &Opening<'_>,
) -> std::result::Result<(Connection, OpenedSession), RemoteError> {
    let timeout = LONGEST_WAIT.get().map_or(timeout, |longest| longest.min(timeout));
    let _status = wait::status_scope();
    wait::report_as(WorkerStatus::Connecting, &format!("connecting to shard \"{}\"", shard.shard_key));
    let mut connection = Connection::open(&shard.shard_key, params, timeout)
        .map_err(|error| credential::refused(shard, error.concealing(params)))?;
    let opened = opening.begin(&mut connection).map_err(|error| error.concealing(params))?;
    database_identity::learn(&mut connection, shard);
    Ok((connection, opened))
}

/// Returns the address of this very database, as a connection string without a user.
pub fn here() -> Conninfo {
    let local = LocalEndpoint::current();
    Conninfo::default()
        .with("host", &local.socket_dir)
        .with("port", &local.port)
        .with("dbname", &local.database)
}

/// Returns the mover's role on a shard. Returns None if a service determines it.
pub fn mover(shard: &Shard) -> std::result::Result<Option<String>, conninfo::ConninfoError> {
    Ok(match &shard.conninfo {
        Some(conninfo) => {
            let conninfo = Conninfo::parse(conninfo)?;
            let has_service = conninfo.get("service").is_some() || std::env::var_os("PGSERVICE").is_some();
            let own = conninfo.get("user").map(str::to_owned);
            own.or_else(|| (!has_service).then(conninfo::default_user).flatten())
        }
        None => Some(LocalEndpoint::current().user),
    })
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
        // SAFETY: these are settings of the server, set before any backend starts and not changed while it lives.
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

/// How a shard recognizes sessions of the mover: the token is the hash, which it stores, of the secret.
#[derive(Clone, Copy)]
pub struct SessionSecret<'a> {
    pub token: &'a str,
    pub secret: &'a str,
}

/// Opens a session that guards admit.
pub fn open_as(shard: &Shard, purpose: &str, known: SessionSecret<'_>, replica: bool) -> Result<Connection> {
    open_known(shard, purpose, known, replica, false).map(|(session, _)| session)
}

/// Opens a session that has the mover's secret. No statement log contains what a session begins with. If the startup
/// options are not free, a statement sets the secret.
fn open_known(
    shard: &Shard,
    purpose: &str,
    known: SessionSecret<'_>,
    replica: bool,
    hashes: bool,
) -> Result<(Connection, OpenedSession)> {
    let secret = known.secret;
    let opening = Opening { token: Some(known.token), replica, hashes };
    let mut params = parameters(shard, purpose)?;
    if let Some(options) = own_options(shard) {
        params.push("options", &format!("{options} -c shardmaster_agent.mover={secret}"));
    }
    let (mut connection, opened) = match open_by(shard, &params, guc::remote_timeout(), &opening) {
        // There is a pooler in between.
        Err(error) if error.message.contains("unsupported startup parameter") => {
            params.pop();
            open_by(shard, &params, guc::remote_timeout(), &opening)?
        }
        outcome => outcome.map_err(explain_replica)?,
    };
    if !opened.knows {
        tell(&mut connection, secret)?;
    }
    Ok((connection, opened))
}

fn tell(connection: &mut Connection, secret: &str) -> Result<()> {
    connection.query("SELECT set_config('shardmaster_agent.mover', $1, false)", &[Some(secret)])?;
    Ok(())
}

/// Returns the options in a shard's own connection string. Returns None if a service or the environment may have some,
/// which libpq would not read beside ours.
fn own_options(shard: &Shard) -> Option<String> {
    if ["PGSERVICE", "PGOPTIONS"].iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let Some(text) = &shard.conninfo else { return Some(String::new()) };
    let conninfo = Conninfo::parse(text).ok()?;
    conninfo.get("service").is_none().then(|| conninfo.get("options").unwrap_or_default().to_owned())
}

/// Opens a session that the capture triggers admit and that carries out steps.
pub fn open_mover(plan: &Plan, side: Side, purpose: &str) -> Result<Connection> {
    let purpose = format!("split {} {purpose}", plan.id);
    let known = SessionSecret { token: &plan.token, secret: &plan.secret };
    let hashes = plan.scope.strategy().buckets().is_some();
    let (mut connection, opened) =
        open_known(side.shard(plan), &purpose, known, side == Side::Target, hashes)?;
    if let Some(schema) = &opened.installed {
        session_hash::take_installed(&mut connection, schema)?;
    }
    Ok(connection)
}

fn explain_replica(mut error: RemoteError) -> RemoteError {
    if error.is("42501") && error.message.contains("session_replication_role") {
        error.hint = Some(
            "As a superuser on the target, run GRANT SET ON PARAMETER session_replication_role TO the mover's role."
                .to_owned(),
        );
    }
    error
}

/// Checks that both sessions of a mover are on one running server, as it identified itself when they began. After a
/// failover one of them may still talk to the old primary, which knows nothing of what is written to the new one.
pub fn require_one_server(one: &Connection, other: &Connection) -> Result<()> {
    if one.instance().is_some() && one.instance() == other.instance() {
        return Ok(());
    }
    Err(SplitError::Retry(format!(
        "shard \"{}\": two sessions are on two servers, one of them an old primary",
        one.shard()
    )))
}
