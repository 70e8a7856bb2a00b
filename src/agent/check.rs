//! `shard_check()`: what a session that connects to a shard as splits do finds there.

use super::error::{Result, SplitError};
use super::state::master;
use super::{decisions, session};
use crate::catalog::shard::{self, Shard, TopologyError};
use crate::catalog::{outdated, shard_decision, split};
use crate::clean;
use crate::error::{Failure, SqlState};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SERVER: &str = include_str!("../../sql/check/server.sql");
const SHARD: &str = include_str!("../../sql/check/shard.sql");

/// The limit for each host of a connection string, and for each question: an operator waits at a terminal.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The permitted difference of the clocks, in seconds: only people compare times of events.
const MOST_DIFFERENCE: f64 = 1.0;
/// The number of questions of which the fastest answer counts.
const ROUNDS: u32 = 5;

/// The finding whether the shard can be reached.
pub const CONNECT: &str = "connect";
/// The finding whether another master moves its rows.
const MASTER: &str = "master";
/// The finding whether it knows decisions that this master does not.
const DECISIONS: &str = "decisions";

pub struct ShardFinding {
    pub item: String,
    pub ok: bool,
    pub detail: String,
    pub hint: Option<String>,
}

pub fn found(item: &str, ok: bool, detail: String, hint: &str) -> ShardFinding {
    let hint = Some(hint.to_owned()).filter(|hint| !ok && !hint.is_empty());
    ShardFinding { item: item.to_owned(), ok, detail, hint }
}

/// Returns all findings; for a shard that cannot be reached, only that one. Texts from the shard are passed on as they
/// are.
pub fn run(shard_key: &str) -> std::result::Result<Vec<ShardFinding>, Failure> {
    let shard = shard::by_key(shard_key)?;
    if !shard.holds_rows() {
        return Err(TopologyError::NoServer { shard: shard.shard_key, kind: shard.kind }.into());
    }
    let began = Instant::now();
    let mut connection = match session::open_within(&shard, "check", LONGEST_WAIT) {
        Ok(connection) => connection,
        Err(error) => return Ok(vec![unreachable(error)]),
    };
    let mut all = vec![found(CONNECT, true, format!("in {} ms", began.elapsed().as_millis()), "")];
    connection.set_deadline(Some(Instant::now() + LONGEST_WAIT));
    look(&mut connection, &shard, &mut all).map_err(SplitError::into_failure)?;
    Ok(all)
}

fn unreachable(error: RemoteError) -> ShardFinding {
    let failure = SplitError::from(error).into_failure();
    let hint = failure.hint.unwrap_or_else(|| {
        "The worker connects as the operating-system user of the master's server. Try psql with this connection string as that user."
            .to_owned()
    });
    ShardFinding { item: CONNECT.to_owned(), ok: false, detail: failure.message, hint: Some(hint) }
}

fn look(connection: &mut Connection, shard: &Shard, all: &mut Vec<ShardFinding>) -> Result<()> {
    all.extend(clocks(connection)?);
    for (query, parameters) in [(SHARD, &[Some(shard.namespace.as_str())][..]), (SERVER, &[])] {
        for row in connection.query(query, parameters)?.rows {
            let mut cells = row.into_iter();
            let mut cell = || cells.next().flatten().unwrap_or_default();
            let (item, ok, detail, hint) = (cell(), cell() == "t", cell(), cell());
            all.push(found(
                &clean::printable(&item),
                ok,
                clean::printable(&detail),
                &clean::printable(&hint),
            ));
        }
    }
    all.push(replica_role(connection)?);
    all.push(master_of(connection)?);
    all.push(decisions_of(connection, shard)?);
    Ok(())
}

/// Checks which master's splits have their agent on the shard.
fn master_of(connection: &mut Connection) -> Result<ShardFinding> {
    match master::check(connection, &split::identity()) {
        Ok(()) => Ok(found(MASTER, true, "no other".to_owned(), "")),
        Err(SplitError::Failed(failure)) => {
            Ok(found(MASTER, false, clean::printable(&failure.message), &failure.hint.unwrap_or_default()))
        }
        Err(other) => Err(other),
    }
}

/// Checks whether the shard knows a cutover that this master does not. Such decisions are stored if writes are
/// possible.
fn decisions_of(connection: &mut Connection, shard: &Shard) -> Result<ShardFinding> {
    let unknown = decisions::unknown(connection, shard)?;
    decisions::keep(shard, &unknown);
    let keyspaces: BTreeSet<&String> = unknown.iter().map(|decision| &decision.keyspace).collect();
    let of = |keyspace: &String| {
        unknown.iter().filter(|lost| lost.keyspace == *keyspace).cloned().collect::<Vec<_>>()
    };
    let told: Vec<String> =
        keyspaces.into_iter().filter_map(|keyspace| shard_decision::told_shortly(&of(keyspace))).collect();
    Ok(if told.is_empty() {
        found(DECISIONS, true, "no redirects of another master".to_owned(), "")
    } else {
        found(DECISIONS, false, clean::printable(&told.join("; ")), outdated::ADOPT)
    })
}

/// Measures how long an answer takes, and how far the clocks are apart, as far as this can be measured from here.
fn clocks(connection: &mut Connection) -> Result<[ShardFinding; 2]> {
    let mut best: Option<(Duration, f64)> = None;
    for _ in 0..ROUNDS {
        let (asked, before) = (Instant::now(), now());
        let rows = connection.run("SELECT extract(epoch FROM clock_timestamp())")?;
        let took = asked.elapsed();
        let there: f64 = rows.scalar().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, there - before - took.as_secs_f64() / 2.0));
        }
    }
    let (took, difference) = best.unwrap_or_default();
    let told = if difference.is_finite() {
        format!("{:+.0} ms to this server's", difference * 1000.0)
    } else {
        "it reports no time".to_owned()
    };
    Ok([
        found("round trip", true, format!("{:.1} ms", took.as_secs_f64() * 1000.0), ""),
        found(
            "clock",
            difference.abs() < MOST_DIFFERENCE,
            told,
            "Synchronize the clocks of both servers with NTP. Until then times of events cannot be compared.",
        ),
    ])
}

fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Tries to set the replica role, and rolls it back.
fn replica_role(connection: &mut Connection) -> Result<ShardFinding> {
    connection.run("BEGIN")?;
    let tried = connection.run("SET LOCAL session_replication_role = replica");
    connection.run("ROLLBACK")?;
    let item = "right to write without firing triggers";
    match tried {
        Ok(_) => Ok(found(item, true, "SET session_replication_role".to_owned(), "")),
        Err(error) if error.is_transient() => Err(error.into()),
        Err(error) => Ok(found(
            item,
            false,
            clean::printable(&error.message),
            "GRANT SET ON PARAMETER session_replication_role TO the mover's role. Before PostgreSQL 15 the role must be a superuser.",
        )),
    }
}

/// Requires a shard that is added to have no problem. That another master has it is permitted: it can be taken over
/// once it is added.
pub fn require(shard_key: &str) -> std::result::Result<(), Failure> {
    let is_adopted = |found: &ShardFinding| found.item == MASTER || found.item == DECISIONS;
    let wrong: Vec<ShardFinding> =
        run(shard_key)?.into_iter().filter(|found| !found.ok && !is_adopted(found)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = wrong.iter().map(|found| format!("{}: {}", found.item, found.detail)).collect();
    let hints: Vec<&str> = wrong.iter().filter_map(|found| found.hint.as_deref()).collect();
    let failure = Failure::new(SqlState::NOT_IN_STATE, format!("shard \"{shard_key}\" is not ready"));
    Err(failure.detail(texts.join("\n")).hint(hints.join("\n")))
}
