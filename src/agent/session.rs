//! Sessions of a split on its shards, and the generation that says whose they are.

use super::error::{Result, SplitError};
use super::session_hash;
use crate::catalog::shard::Shard;
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::keys::scope::Scope;
use crate::remote::{Connection, RemoteError, conninfo, quote};
use crate::server::txn::transaction;
use crate::server::wait;
use crate::{agent, guc};
use pgrx::pg_sys;
use std::ffi::CStr;
use std::time::{Duration, Instant};

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
    SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET exit_on_error = off;
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
    SET default_transaction_deferrable = off; SET quote_all_identifiers = off;
    SET transform_null_equals = off; SET gin_fuzzy_search_limit = 0; SET default_table_access_method = 'heap';
    SET check_function_bodies = on; SET jit = off; SET plan_cache_mode = force_generic_plan;
    SET client_min_messages = error";

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
    open_by(shard, &parameters(shard, purpose), &|| true)
}

/// Connecting ends where it is not wanted any more.
fn open_by(
    shard: &Shard,
    params: &[(String, String)],
    is_wanted: &dyn Fn() -> bool,
) -> std::result::Result<Connection, RemoteError> {
    let params: Vec<(&str, &str)> =
        params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let _said = wait::said();
    wait::report(&format!("connecting to shard \"{}\"", shard.shard_key));
    let mut connection = Connection::open_while(&shard.shard_key, &params, guc::remote_timeout(), is_wanted)?;
    let version = connection.server_version();
    let since = PINNED_SINCE.iter().filter(|(since, _)| version >= *since).map(|(_, settings)| *settings);
    // In one message: each answer is a way there and back. What is trusted is asked under the
    // settings that stand before it, and where it is not, the session goes with them.
    let opening: Vec<&str> = [PINNED].into_iter().chain(since).chain([agent::TRUST]).collect();
    connection.run(&opening.join(";\n"))?;
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
            database: crate::catalog::local::database(),
            user: guc::local_user().unwrap_or_else(crate::catalog::local::owner),
        }
    }
}

/// A session that has the mover's secret. No log of statements holds what a session begins
/// with; where that is not ours alone to say, the secret is told by a statement.
fn open_known(shard: &Shard, purpose: &str, plan: &Plan, is_wanted: &dyn Fn() -> bool) -> Result<Connection> {
    let secret = &plan.secret;
    let mut params = parameters(shard, purpose);
    if let Some(options) = own_options(shard) {
        params.push(("options".to_owned(), format!("{options} -c shardmaster_agent.mover={secret}")));
        match open_by(shard, &params, is_wanted) {
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
    let mut connection = open_by(shard, &params, is_wanted)?;
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
    // A rollback that can do without the target does not wait for a host that is gone.
    let is_wanted = || side == Side::Source || !is_lost_by_now(plan.id);
    let purpose = format!("split {} {purpose}", plan.id);
    let mut connection = open_known(shard, &purpose, plan, &is_wanted)?;
    if matches!(plan.scope, Scope::Buckets { .. }) {
        session_hash::set_up(&mut connection)?;
    }
    if side == Side::Target {
        connection.run("SET session_replication_role = replica").map_err(explain_replica)?;
    }
    Ok(connection)
}

/// The operator has said meanwhile that the target will not come back.
fn is_lost_by_now(id: i64) -> bool {
    // SAFETY: a plain variable of this process. A session has its own transaction, and its
    // caller to cancel it.
    let is_worker = unsafe { !pg_sys::MyBgworkerEntry.is_null() };
    is_worker && transaction(|| split::state(id)).is_ok_and(|state| state.target_lost)
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

/// Whose the objects are that a shard has under a split's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    No,
    Ours,
    /// Of another split: a master that was restored gives numbers out again.
    Foreign,
}

/// What the shard has of a side, known by the plan's token.
pub fn installed(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Installed> {
    if connection.run("SELECT to_regclass('shardmaster_agent.side')")?.scalar().is_none() {
        return Ok(Installed::No);
    }
    let rows = match connection.query(
        "SELECT token = $3 FROM shardmaster_agent.side WHERE split_id = $1 AND side = $2",
        &[Some(&plan.id.to_string()), Some(side.as_str()), Some(&plan.token)],
    ) {
        Err(error) if is_gone(&error) => return Ok(Installed::No),
        rows => rows?,
    };
    Ok(match rows.scalar() {
        None => Installed::No,
        Some("t") => Installed::Ours,
        Some(_) => Installed::Foreign,
    })
}

/// The agent's tables are not there: the schema goes with the last split and the last redirect.
fn is_gone(error: &RemoteError) -> bool {
    error.is("42P01") || error.is("3F000")
}

/// The error of `Installed::Foreign`, and of its finding.
pub fn foreign(shard: &str, plan: &Plan) -> Failure {
    Failure::new(
        SqlState::IN_USE,
        format!("shard \"{shard}\" has objects of another split {}, which this master does not know", plan.id),
    )
    .hint(format!(
        "This master was restored and has given the number out again: SELECT shard_adopt({}), which moves its numbers on, then roll this plan back and plan again.",
        quote::literal(shard)
    ))
}

/// Refuses a shard that has another split's objects under the plan's number.
pub fn require_own(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    match installed(connection, plan, side)? {
        Installed::No | Installed::Ours => Ok(()),
        Installed::Foreign => Err(foreign(connection.shard(), plan).into()),
    }
}

/// Refuses a shard that belongs to another master.
pub fn check_identity(connection: &mut Connection, identity: &str) -> Result<()> {
    if connection.run("SELECT to_regclass('shardmaster_agent.master')")?.scalar().is_none() {
        return Ok(());
    }
    let rows = match connection.run("SELECT identity FROM shardmaster_agent.master") {
        // The last split there has ended in between, and taken the schema along.
        Err(error) if is_gone(&error) => return Ok(()),
        rows => rows?,
    };
    match rows.scalar() {
        Some(known) if known != identity => {
            let shard = connection.shard();
            Err(SplitError::failed(
                SqlState::NOT_IN_STATE,
                format!("shard \"{shard}\" belongs to another master"),
                format!(
                    "If this master replaces the other one, and the other one is gone for good, run SELECT shard_adopt({}).",
                    quote::literal(shard)
                ),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// The error of `Installed::No` where a side must be.
fn not_installed(shard: &str, id: i64) -> SplitError {
    SplitError::NotInstalled(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("shard \"{shard}\" does not know split {id}: it was restored to a time before, or cleaned up"),
        )
        .hint(format!(
            "If the cutover has not decided yet, SELECT shard_split_rollback({id}), then start the split again. If it has, keep clients off the shard, restore it to a time after the cutover, and resume the split."
        )),
    )
}

/// Workers that a restored master may have forgotten: a number further ahead is nobody's, and
/// going on from it would use up those that are left.
const MOST_LOST: i64 = 1_000_000_000;

/// Takes a side over: the sessions of the worker before are ended and waited for,
/// then the generation is raised. A late commit of a dead worker's session would
/// otherwise come between what is read afterwards and what is written.
pub fn take_over(connection: &mut Connection, plan: &Plan, side: Side, generation: i64) -> Result<()> {
    match installed(connection, plan, side)? {
        Installed::Ours => {}
        Installed::Foreign => return Err(foreign(connection.shard(), plan).into()),
        Installed::No => return Err(not_installed(connection.shard(), plan.id)),
    }
    end_previous(connection, plan, side)?;
    let id = plan.id.to_string();
    let key = [Some(id.as_str()), Some(side.as_str())];
    let raised = connection
        .query(
            "UPDATE shardmaster_agent.generation SET generation = $3
              WHERE split_id = $1 AND side = $2 AND generation < $3",
            &[key[0], key[1], Some(&generation.to_string())],
        )
        .map_err(|error| match error.is_lock_timeout() {
            true => SplitError::Retry(format!(
                "a transaction of the previous worker on shard \"{}\"",
                error.shard
            )),
            false => error.into(),
        })?;
    if raised.affected != 1 {
        let known = known_generation(connection, plan, side)?.unwrap_or(generation);
        if known > generation.saturating_add(MOST_LOST) {
            return Err(SplitError::failed(
                SqlState::NOT_IN_STATE,
                format!(
                    "shard \"{}\" knows worker {known} of split {}, which no master has had",
                    connection.shard(),
                    plan.id
                ),
                "Somebody has written into the agent's tables there: find out who before anything else, then set shardmaster_agent.generation back to a number that the master knows.",
            ));
        }
        return Err(SplitError::Behind { shard: connection.shard().to_owned(), generation: known });
    }
    connection.query("DELETE FROM shardmaster_agent.session WHERE split_id = $1 AND side = $2", &key)?;
    Ok(())
}

/// The newest generation that a shard knows of a side.
pub fn known_generation(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Option<i64>> {
    let known = connection.query(
        "SELECT generation FROM shardmaster_agent.generation WHERE split_id = $1 AND side = $2",
        &[Some(&plan.id.to_string()), Some(side.as_str())],
    )?;
    Ok(known.scalar().and_then(|g| g.parse().ok()))
}

/// Ends the sessions of the worker before and waits until they are gone.
pub fn end_previous(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    let id = plan.id.to_string();
    let key = [Some(id.as_str()), Some(side.as_str())];
    let deadline = Instant::now() + Duration::from_secs(10);
    let said = wait::said();
    loop {
        let left = connection.query(
            "SELECT count(pg_terminate_backend(a.pid)) FROM shardmaster_agent.session s
               JOIN pg_stat_activity a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start
              WHERE s.split_id = $1 AND s.side = $2 AND a.pid <> pg_backend_pid()",
            &key,
        )?;
        if left.scalar() == Some("0") {
            break;
        }
        let reason = format!("sessions of the previous worker on shard \"{}\" to end", connection.shard());
        if Instant::now() > deadline {
            return Err(SplitError::Retry(reason));
        }
        wait::report(&reason);
        wait::sleep(Duration::from_millis(20));
    }
    drop(said);
    Ok(())
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

/// Records a session, so that the next worker can end it.
pub fn register(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.session (split_id, side, backend_pid, backend_start)
         SELECT $1, $2, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()",
        &[Some(&plan.id.to_string()), Some(side.as_str())],
    )?;
    Ok(())
}
