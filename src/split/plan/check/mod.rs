//! Checks of what only the servers know, made before anything moves: all findings are returned at once, and nothing is
//! written. The worker repeats the checks before it installs anything.

pub mod accepted;
pub mod beside;
mod constraints;
mod encoding;
pub mod estimate;
mod event_triggers;
mod expressions;
mod functions;
mod large_objects;
mod long_rows;
mod looked;
mod pairs;
mod partitions;
mod rows;
mod same;
mod scope;
mod server_values;
pub mod unique;

use super::{policies, refusals};
use crate::agent::error::{Result, SplitError};
use crate::agent::observed_side::ObservedSide;
use crate::agent::reading::LockedTables;
use crate::agent::session::{self, Side};
use crate::agent::shape::{Observation, TableShape};
use crate::agent::state::master;
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, decisions, observe};
use crate::catalog::reverse_split::{self, WayBack};
use crate::catalog::shard::Shard;
use crate::catalog::split::Plan;
use crate::catalog::split_state::row::SplitState;
use crate::catalog::split_state::{Goal, Phase};
use crate::error::{Failure, SqlState, told};
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::in_one;
use crate::split::finding::Finding;
use crate::split::plan::copies;
use crate::split::remark::Remark;
use crate::split::table::computed;
use crate::split::{readers, references, sequences, unregistered, untrusted_code};
use crate::words::counted;
use looked::LookedSide;
use std::collections::BTreeSet;

const SERVER: &str = include_str!("../../../../sql/check/server.sql");
const TABLES: &str = include_str!("../../../../sql/check/tables.sql");

/// Returns every finding. A side that cannot be reached is one of them.
pub fn run(plan: &Plan, identity: &str) -> Vec<Finding> {
    look_at(plan, identity, |_, _| ())
}

/// Returns the summary in one line, and all findings, for people.
pub fn report(plan: &Plan, state: &SplitState, identity: &str) -> (String, Vec<Finding>) {
    // The checks before a start do not apply to a split that has ended, nor to a reverse split, which its split
    // begins.
    if state.finished {
        let back = in_one(|| reverse_split::of(plan.id)).ok().flatten().filter(WayBack::is_decided);
        let text = back
            .map_or("finished".to_owned(), |back| format!("finished: split {} has taken it back", back.id));
        return (text, Vec::new());
    }
    if state.goes_back && matches!(state.phase, Phase::Planning | Phase::RolledBack) {
        return (way_back(plan, state), Vec::new());
    }
    // Its shards and keys were released, and are checked when it begins again. Findings of the shards about keys that
    // are elsewhere by now would mislead: rows on the target may be theirs.
    if state.phase == Phase::RolledBack
        && state.goal == Goal::RolledBack
        && let Err(failure) = in_one(|| refusals::again(plan))
    {
        let found = vec![Finding::of_failure("plan", failure)];
        return ("not ready, 1 finding: the shards were not asked".to_owned(), found);
    }
    let mut outlook = None;
    let mut findings = look_at(plan, identity, |source, target| {
        // What would move has moved already.
        if state.phase != Phase::Completed
            && (state.goal != Goal::RolledBack || state.phase == Phase::RolledBack)
        {
            outlook = estimate::of(plan, source, target);
        }
    });
    // A worker tries again automatically.
    for finding in findings.iter_mut().filter(|finding| finding.transient && finding.hint.is_none()) {
        finding.hint = Some("This may be temporary. Ask again.".to_owned());
    }
    let mut line = estimate::line(&findings, outlook.as_ref(), now(state).as_deref());
    // The split has begun, and does not begin again automatically.
    if state.failed() && findings.iter().all(|finding| finding.ok) {
        let resume = format!("SELECT shard_split_resume({})", plan.id);
        line = match state.phase {
            Phase::Planning => line.replacen("ready: ", &format!("ready for {resume}: "), 1),
            _ => format!("{line}; it has failed, and nothing is found that prevents {resume}"),
        };
    }
    (line, findings)
}

fn way_back(plan: &Plan, state: &SplitState) -> String {
    let there = plan.reverse_of.unwrap_or_default();
    match (state.phase, state.goal) {
        (Phase::RolledBack, _) => format!("the reverse split of split {there}, which is being dropped"),
        (_, Goal::Planning) => {
            format!("the reverse split of split {there}: SELECT shard_split_reverse({there}) begins it")
        }
        _ => format!("the reverse split of split {there}, which is requested"),
    }
}

/// Describes what a split does that has begun. Returns None if it may begin, for the first time or again.
fn now(state: &SplitState) -> Option<String> {
    let phase = state.phase.as_str();
    match (state.phase, state.goal) {
        (Phase::RolledBack, Goal::RolledBack) => None,
        (_, Goal::RolledBack) => Some(format!("rolling back from phase {phase}")),
        // Nothing of it is on a shard, whatever was requested.
        (Phase::Planning, _) => None,
        _ => Some(format!("begun, in phase {phase}")),
    }
}

/// Runs the checks. `then` runs more queries, if no code of others prevents that.
fn look_at(
    plan: &Plan,
    identity: &str,
    then: impl FnOnce(&mut ObservedSide, &mut ObservedSide),
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let source = side(plan, Side::Source, identity, &mut findings);
    let target = side(plan, Side::Target, identity, &mut findings);
    findings.extend(in_one(|| references::check::unfilled(plan)));
    if let (Some(mut source), Some(mut target)) = (source, target) {
        match same::check(plan, &mut source.side, &mut target.side) {
            Ok(same) => findings.extend(same),
            Err(error) => findings.push(Finding::unreachable(Side::Target, error)),
        }
        findings.extend(deferrable(plan, &source.side.observation, &target.side.observation));
        pairs::compare(plan, &source.side, &target.side, &mut findings);
        for (looked, side) in [(&source, Side::Source), (&target, Side::Target)] {
            let called =
                looked.called.iter().filter(|c| functions::is_called(plan, &source.side.observation, c));
            findings.extend(called.map(|called| called.finding(side)));
        }
        if source.is_trusted && target.is_trusted {
            let closed: BTreeSet<usize> =
                source.side.locked.closed.union(&target.side.locked.closed).copied().collect();
            looked::leave_out(&mut source.side.observation, &closed);
            looked::leave_out(&mut target.side.observation, &closed);
            match hold(plan, &mut source, &mut target) {
                Ok(()) => {
                    let (source, target) = (&mut source.side, &mut target.side);
                    match both(plan, source, target) {
                        Ok(found) => findings.extend(found),
                        Err(error) => findings.push(Finding::unreachable(Side::Target, error)),
                    }
                    foreign_keys(plan, source, target, &mut findings);
                    then(source, target);
                }
                Err((side, error)) => findings.push(Finding::unreachable(side, error)),
            }
        }
    }
    in_one(|| accepted::settle(plan.id, &mut findings));
    findings
}

/// Locks the tables of both sides: queries run only code that was checked, and nothing of it changes until the
/// sessions end.
fn hold(
    plan: &Plan,
    source: &mut LookedSide,
    target: &mut LookedSide,
) -> std::result::Result<(), (Side, SplitError)> {
    source.hold(plan, Side::Source).map_err(|error| (Side::Source, error))?;
    target.hold(plan, Side::Target).map_err(|error| (Side::Target, error))
}

/// Finds deferrable constraints. In a replica's session they are not checked: the target's hold for copied rows if the
/// source has the same. (One without the shard-by column is refused separately: no single side has all keys' rows.)
fn deferrable(plan: &Plan, source: &Observation, target: &Observation) -> Vec<Finding> {
    let tables = plan.tables.iter().zip(source.tables.iter().zip(&target.tables));
    tables
        .filter_map(|(policy, (from, to))| {
            let (promise, why) = to.unkept_promise(from, |column| computed::is_own(policy, column))?;
            Some(Finding::new(
                "target: deferrable constraints of the source",
                false,
                format!("{}: constraint \"{}\", {why}", policy.table_name, promise.name),
                "Make it NOT DEFERRABLE, or add it to the source and compute none of its columns. For copied rows it is not checked.",
            ))
        })
        .collect()
}

/// Finds what only the target enforces.
fn both(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let mut findings = constraints::check(plan, source, target)?;
    let (found, read) = sequences::check::check(plan, source, target)?;
    findings.extend(found);
    findings.extend(server_values::check(plan, source, &target.observation)?);
    let beside = beside::check(plan, source, target, &findings)?;
    findings.extend(beside);
    findings.extend(long_rows::check(plan, &mut source.session, &mut target.session)?);
    findings.extend(partitions::check(plan, source, &mut target.session)?);
    findings.extend(unique::check(plan, source, target, read)?);
    Ok(findings)
}

/// Requires a passed check before the start: every error stops the split. A server that cannot be reached may come
/// back.
pub fn require(plan: &Plan, identity: &str) -> Result<()> {
    require_of(plan, run(plan, identity).into_iter().filter(|finding| !finding.ok).collect())
}

/// Requires a passed check after tables have changed while the split runs. What clients may miss after the cutover
/// does not stop it.
pub fn require_again(plan: &Plan, identity: &str) -> Result<()> {
    let stops = |finding: &Finding| {
        let remark = finding.object.as_ref().and_then(|_| Remark::parse(&finding.name));
        !finding.ok && remark.is_none_or(Remark::is_of_rows)
    };
    require_of(plan, run(plan, identity).into_iter().filter(stops).collect())
}

fn require_of(plan: &Plan, bad: Vec<Finding>) -> Result<()> {
    let Some(first) = bad.first() else { return Ok(()) };
    if let Some(away) = bad.iter().find(|finding| finding.transient) {
        return Err(SplitError::Retry(told(&away.detail, away.hint.as_deref())));
    }
    let all: Vec<String> = bad.iter().map(|f| format!("{}: {}", f.name, f.detail)).collect();
    let state = match first.name.rsplit(": ").next() {
        Some("table exists") => SqlState::parse("42P01"),
        Some(name) if name.starts_with("right") => SqlState::parse("42501"),
        _ => SqlState::NOT_IN_STATE,
    };
    Err(SplitError::Failed(
        Failure::new(
            state,
            format!("the check found {}, first: {}", counted(bad.len(), "problem", "problems"), all[0]),
        )
        .detail(all.join("; "))
        .hint(format!(
            "SELECT * FROM shard_split_check({}) WHERE NOT ok lists them with what to do.",
            plan.id
        )),
    ))
}

/// Returns the observation of one side, and adds its findings.
fn side(plan: &Plan, side: Side, identity: &str, findings: &mut Vec<Finding>) -> Option<LookedSide> {
    match look(plan, side, identity, findings) {
        Ok(looked) => Some(looked),
        Err(error) => {
            findings.push(Finding::unreachable(side, error));
            None
        }
    }
}

fn look(plan: &Plan, side: Side, identity: &str, findings: &mut Vec<Finding>) -> Result<LookedSide> {
    let shard = side.shard(plan);
    let mut connection = session::open(shard, &format!("split {} check", plan.id))?;
    master::check(&mut connection, identity)?;
    let label = |name: &str| format!("{}: {name}", side.as_str());
    match decisions::require_known(&mut connection, shard) {
        Err(SplitError::Failed(lost)) => findings.push(Finding::of_failure(&label("decisions"), lost)),
        known => known?,
    }
    findings.push(Finding::new(&label("connection"), true, format!("shard \"{}\"", shard.shard_key), ""));
    let copied = asked("whose redirects it has", copies::redirected(&mut connection, shard))?;
    findings.extend(copied.into_iter().map(|(split, original)| of_a_copy(side, shard, split, &original)));
    let direct = direct_connection(&mut connection, &label("direct connection"));
    findings.push(asked("whether a session keeps its locks", direct)?);
    findings.push(replica_role(&mut connection, &label("right to be a replica")));
    findings.extend(asked("which database it is", untrusted_code::unsaid(&mut connection, plan, side))?);
    // This comes before queries over the tables that could run such code, so that nothing is added afterwards.
    let names = TableNames::of(plan, side);
    let locked = asked("for its tables to be read", looked::hold(&mut connection, &names))?;
    let mut looked = look_at_tables(plan, side, connection, locked, findings)?;
    if !looked.side.locked.closed.is_empty() && findings.iter().all(|finding| finding.ok) {
        let text = "the mover cannot lock a table of the keyspace to read it";
        findings.push(Finding::new(
            &label("right to read"),
            false,
            text,
            "Grant the mover SELECT on its tables.",
        ));
    }
    // The other side is read without locks on these tables.
    looked.side.session.run("ROLLBACK")?;
    Ok(looked)
}

/// Reads the tables within the transaction that locks them, if they can be locked.
fn look_at_tables(
    plan: &Plan,
    side: Side,
    mut connection: Connection,
    locked: LockedTables,
    findings: &mut Vec<Finding>,
) -> Result<LookedSide> {
    // This record of the tables' code is older than the following check: a change in between is found again.
    let observation = asked("what its tables are like", observe::observe(&mut connection, plan, side))?;
    let others = asked(
        "whose code its tables run",
        untrusted_code::find(&mut connection, plan, side, observation.code()),
    )?;
    findings.extend(others.findings(plan, side));
    if others.code.is_empty() {
        let found = event_triggers::check(plan, side, &mut connection);
        findings.extend(asked("what its event triggers do to a split", found)?);
    }
    let server = format!("{SERVER} UNION ALL {}", readers::ALL_TABLES);
    let server = asked("what its server is like", connection.run(&server))?;
    findings.extend(server.rows.iter().map(|row| from_row(plan, side, row)));
    let tables = asked("what prevents moving its tables", in_the_way(plan, side, &mut connection))?;
    findings.extend(tables.rows.iter().map(|row| from_row(plan, side, row)));
    findings.extend(asked("which tables are in no keyspace", left_behind(plan, side, &mut connection))?);
    findings.extend(asked("whose its tables are", policies::check(&mut connection, plan, side))?);
    // Testing a function's body reads its constants, which types may compute.
    let called = if others.code.is_empty() {
        asked("what its tables call", functions::find(plan, side, &mut connection))?
    } else {
        Vec::new()
    };
    let mut is_trusted = others.code.is_empty() && observation.tables.iter().all(TableShape::is_ordinary);
    let mut readable = observation.clone();
    looked::leave_out(&mut readable, &locked.closed);
    locked.require_leaves(connection.shard(), &readable.tables)?;
    if is_trusted && !called.iter().any(functions::Called::is_in_the_way) {
        scope::check(plan, side, &mut connection, &readable, findings)?;
    }
    if is_trusted && side == Side::Source {
        // A text that is no expression is used in no later query.
        is_trusted = expressions::check(plan, &mut connection, &readable, findings)?;
    }
    let names = TableNames::of(plan, side);
    let side = ObservedSide { session: connection, names, observation, locked };
    Ok(LookedSide { side, called, is_trusted })
}

fn in_the_way(
    plan: &Plan,
    side: Side,
    connection: &mut Connection,
) -> std::result::Result<Rows, RemoteError> {
    let [schemas, names, columns] = TableNames::keyed_lists(plan, side);
    let is_target = (side == Side::Target).to_string();
    catalogs::ask(connection, TABLES, &catalogs::given(&[schemas, names, columns, is_target]))
}

/// Finds tables in no keyspace. A table that references one of the keyspace directly has a finding of its own,
/// whatever its registration is. On the target only a reverse split asks for them.
fn left_behind(plan: &Plan, side: Side, connection: &mut Connection) -> Result<Vec<Finding>> {
    let found = unregistered::find(connection, plan, side)?.into_iter().filter(|table| !table.is_direct);
    let name = format!("{}: tables in no keyspace", side.as_str());
    Ok(found
        .map(|table| match side {
            Side::Source => Finding::new(&name, false, table.text(), &table.hint(&plan.keyspace)),
            Side::Target => {
                let detail = format!(
                    "{} if the split is taken back, which is refused until it is registered",
                    table.text()
                );
                Finding::note(&name, detail, &table.hint(&plan.keyspace))
            }
        })
        .collect())
}

/// Returns the finding for a copy: clients of these keys are refused here, though nothing has left this shard.
fn of_a_copy(side: Side, shard: &Shard, split: i64, original: &str) -> Finding {
    Finding::new(
        &format!("{}: redirects of another shard", side.as_str()),
        false,
        format!(
            "it is a copy of shard \"{original}\", and refuses the keys that split {split} has moved away from there"
        ),
        &format!("SELECT * FROM shard_cleanup({}) removes that from the copy.", literal(&shard.shard_key)),
    )
}

/// Adds to an error of a missing answer what was asked.
fn asked<T, E: Into<SplitError>>(question: &str, answer: std::result::Result<T, E>) -> Result<T> {
    answer.map_err(|error| match error.into() {
        SplitError::Remote(error) => SplitError::Remote(error.asked(question)),
        other => other,
    })
}

fn from_row(plan: &Plan, side: Side, row: &[Option<String>]) -> Finding {
    let cell = |n: usize| row.get(n).cloned().flatten().unwrap_or_default();
    // The names are quoted for typing.
    let [from, to, keyspace] =
        [&plan.source.shard_key, &plan.target.shard_key, &plan.keyspace].map(|name| literal(name));
    let copy = format!("SELECT * FROM shard_schema_copy({from}, {to}, {keyspace})");
    let hint = cell(3).replace("shard_schema_copy()", &copy);
    Finding::new(&format!("{}: {}", side.as_str(), cell(0)), cell(1) == "t", cell(2), &hint)
}

/// Checks for a direct connection: a pooler that gives each transaction another session loses locks and settings.
fn direct_connection(connection: &mut Connection, name: &str) -> Result<Finding> {
    // The number is random: a session that knows the number of an advisory lock can hold it.
    connection.run("SELECT pg_advisory_lock_shared((random() * 9e15)::bigint)")?;
    let held = connection.run(
        "SELECT pg_backend_pid()::text || ' ' || count(*) FROM pg_locks
          WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    )?;
    let held = held.scalar().unwrap_or_default().to_owned();
    connection.run("SELECT pg_advisory_unlock_all()")?;
    let again = connection.run("SELECT pg_backend_pid()")?;
    let direct = held.split_once(' ').is_some_and(|(pid, locks)| again.scalar() == Some(pid) && locks != "0");
    let detail =
        if direct { "sessions keep their locks" } else { "a session lost its lock between two statements" };
    Ok(Finding::new(name, direct, detail, "Connect to the server itself, not to a transaction pooler."))
}

fn replica_role(connection: &mut Connection, name: &str) -> Finding {
    let set = connection.run("SET session_replication_role = replica");
    let _ = connection.run("RESET session_replication_role");
    let detail = match &set {
        Ok(_) => "session_replication_role can be set".to_owned(),
        Err(error) => error.message.clone(),
    };
    let transient = set.as_ref().is_err_and(RemoteError::is_transient);
    let hint = "GRANT SET ON PARAMETER session_replication_role TO the mover's role (before PostgreSQL 15: a superuser).";
    Finding { transient, ..Finding::new(name, set.is_ok(), detail, hint) }
}

/// Checks foreign keys. A side that cannot be read has a finding of its own already.
fn foreign_keys(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    findings: &mut Vec<Finding>,
) {
    match references::check::run(plan, source, target) {
        Ok(found) => findings.extend(found),
        Err(_) if findings.iter().any(|finding| !finding.ok) => {}
        Err(error) => findings.push(Finding::of_error("foreign keys", error)),
    }
}
