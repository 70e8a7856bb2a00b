//! Finds problems of a split, on the master and on both shards, and what would repair them. Nothing is changed
//! anywhere, and the sides are not taken over: a worker continues.

use crate::agent::error::Result;
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::TableShape;
use crate::agent::state::epoch;
use crate::agent::state::side::{self, Installed};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::row::{self, SplitState};
use crate::catalog::split_state::{CutoverStep, Goal, Phase};
use crate::catalog::verification::{self, DifferingRows};
use crate::catalog::waiting_split;
use crate::catalog::{reverse_split, routing};
use crate::error::Failure;
use crate::remote::Connection;
use crate::server::sql;
use crate::split::copy::leaves;
use crate::split::cutover::side_state_check;
use crate::split::plan::check;
use crate::split::{phases, readers};
use crate::words::{counted, from_the_beginning};
use crate::{clean, guc};
use std::time::{Duration, Instant};

/// One problem.
pub struct Complaint {
    /// The master, or a side with its shard.
    pub place: String,
    pub problem: String,
    /// What the operator can do. `None` if the problem ends without action.
    pub repair: Option<String>,
}

impl Complaint {
    fn new(place: &str, problem: &str, repair: Option<String>) -> Complaint {
        Complaint {
            place: clean::message(place),
            problem: clean::more(problem),
            repair: repair.map(|text| clean::printable(&text)),
        }
    }

    fn of(place: &str, failure: Failure) -> Complaint {
        Complaint::new(place, &failure.message, failure.hint)
    }
}

/// The number of attempts: a result during which a worker has advanced is discarded,
const TRIES: usize = 5;
/// but if a shard does not answer, each attempt takes a time-out, during which the worker advances.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Returns all problems, the master's first.
pub fn run(id: i64) -> std::result::Result<Vec<Complaint>, Failure> {
    let began = Instant::now();
    let mut state = row::read(id)?;
    let mut found = look(id, &state)?;
    for _ in 1..TRIES {
        let now = row::read(id)?;
        if is_same(&state, &now) || began.elapsed() > LONGEST_WAIT {
            break;
        }
        state = now;
        found = look(id, &state)?;
    }
    Ok(found)
}

fn is_same(before: &SplitState, now: &SplitState) -> bool {
    let of =
        |state: &SplitState| (state.phase, state.goal, state.cutover_step, state.generation, state.failed());
    of(before) == of(now)
}

fn look(id: i64, state: &SplitState) -> std::result::Result<Vec<Complaint>, Failure> {
    let plan = split::load(id)?;
    let mut found = on_master(&plan, state);
    let identity = split::identity();
    if is_before_start(state) && !state.goes_back {
        let bad = check::run(&plan, &identity).into_iter().filter(|finding| !finding.ok);
        found.extend(bad.map(|finding| {
            Complaint::new(&finding.name, &finding.detail, finding.hint.filter(|hint| !hint.is_empty()))
        }));
    }
    for side in [Side::Source, Side::Target] {
        let place = place(&plan, side);
        match on_shard(&plan, state, side, &identity) {
            Ok(problems) => {
                found
                    .extend(problems.into_iter().map(|(text, repair)| Complaint::new(&place, &text, repair)));
            }
            Err(error) => found.push(Complaint::of(&place, error.into_failure())),
        }
    }
    Ok(found)
}

fn is_before_start(state: &SplitState) -> bool {
    state.phase == Phase::Planning && state.goal == Goal::Planning
}

fn place(plan: &Plan, side: Side) -> String {
    format!("{} shard \"{}\"", side.as_str(), side.shard(plan).shard_key)
}

/// The problem, and what repairs it.
type DiagnosedProblem = (String, Option<String>);

fn on_master(plan: &Plan, state: &SplitState) -> Vec<Complaint> {
    let id = plan.id;
    let mut found: Vec<DiagnosedProblem> = Vec::new();
    if let Some(error) = &state.error {
        // A split that continues may have had an error before.
        let what = if state.failed() { "it has failed" } else { "its last error" };
        found.push((format!("{what}: {}", error.message), error.hint.clone()));
    }
    if state.paused {
        found.push(("it is paused".into(), Some(format!("SELECT shard_split_resume({id})."))));
    }
    if let Some(reason) = waits(id).filter(|_| !state.failed() && !state.paused) {
        found.push((reason, wants_worker(id, state.goal)));
    }
    if let Some(DifferingRows { rows, tables }) = verification::differing(id).filter(|_| !state.finished) {
        let repair = if phases::is_decided(state.phase) {
            format!(
                "SELECT * FROM shard_split_verification({id}) shows them. Make them alike, on the side that is wrong."
            )
        } else {
            format!("SELECT shard_split_repair({id}) copies them again.")
        };
        found.push((
            format!("{} of {tables} found to differ between its sides", counted(rows, "row", "rows")),
            Some(repair),
        ));
    }
    found.extend(routes(plan, state));
    found.into_iter().map(|(problem, repair)| Complaint::new("master", &problem, repair)).collect()
}

/// Describes what the split waits for: a worker, a condition since its first failed attempt, or a session that blocks
/// it. A split that waits for its operator's call is not described.
fn waits(id: i64) -> Option<String> {
    // The catalog of 0.1.0 cannot tell.
    let is_there = "SELECT true WHERE to_regprocedure('shardmaster.split_waits(bigint)') IS NOT NULL";
    let blocked = match sql::read_one(is_there, &[], |_| ()) {
        Some(()) => {
            "(SELECT 'it waits for ' || shardmaster.waiting_words(w.waiting_for)
                        FROM shardmaster.split_waits(p.id) w WHERE w.waiting_on <> 'call')"
        }
        None => "NULL::text",
    };
    sql::read_one(
        &format!("SELECT coalesce('it waits for ' || shardmaster.split_waits_for_worker(p.id),
                         CASE WHEN p.activity = 'retrying'
                              THEN concat_ws(', and waits for ',
                                             format('it has tried again since %s', date_trunc('second', p.retrying_since)),
                                             shardmaster.waiting_words(shardmaster.split_waits_for(p.id))) END,
                         -- Somebody is in the way of what it was asked for, or was a moment ago.
                         CASE WHEN p.phase = 'planning' AND p.goal <> 'planning' OR p.phase = 'cutover_pending' AND p.goal = 'completed'
                                OR p.goal = 'rolled_back' AND p.phase <> 'rolled_back'
                              THEN {blocked} END)
           FROM shardmaster.split_plan p WHERE p.id = $1"),
        &[id.into()],
        |row| row.get::<String>(1),
    )
    .flatten()
}

/// Returns the call that gives it a worker, or None if it does not wait for one.
fn wants_worker(id: i64, goal: Goal) -> Option<String> {
    waiting_split::of_split(id)?;
    if waiting_split::starts_by_call(id) {
        if reverse_split::of(id).ok().flatten().is_some_and(|back| back.is_decided()) {
            return Some(format!("SELECT shard_split_resume({id}) starts one."));
        }
        let until = match goal {
            Goal::RolledBack => ", 'rolled_back'",
            Goal::Finished => ", 'finished'",
            _ => "",
        };
        return Some(format!("CALL shard_split_run({id}{until}) starts one, and another if it ends."));
    }
    let more = guc::max_split_workers() + 1;
    Some(format!(
        "ALTER SYSTEM SET shardmaster.max_split_workers = {more}; SELECT pg_reload_conf(). Or finish one of those splits."
    ))
}

/// Finds keys that were routed elsewhere meanwhile. Keys of a split that has ended are no longer its own.
fn routes(plan: &Plan, state: &SplitState) -> Option<DiagnosedProblem> {
    // Before the decision of a cutover, writes are routed to its target and refused, which ends automatically. The
    // keys of an idle reverse split are its split's.
    let rests = state.goes_back && is_before_start(state)
        || reverse_split::of(plan.id).ok().flatten().is_some_and(|back| back.is_decided());
    let is_over = state.finished || state.phase == Phase::RolledBack;
    if is_over || rests || state.cutover_step == CutoverStep::Disabled {
        return None;
    }
    let wanted =
        if phases::is_decided(state.phase) { &plan.target.shard_key } else { &plan.source.shard_key };
    let current = routing::current(&plan.keyspace, &plan.entries);
    let mut elsewhere: Vec<&String> =
        plan.entries.iter().filter(|key| current.get(*key) != Some(wanted)).collect();
    elsewhere.sort_unstable();
    let first = elsewhere.first()?;
    let at = current.get(*first).map_or("no shard".to_owned(), |shard| format!("shard \"{shard}\""));
    let text = format!(
        "{} of its keys are not routed to shard \"{wanted}\": key \"{first}\" is routed to {at}",
        elsewhere.len()
    );
    Some((text, Some("SELECT * FROM shard_routing_history() shows who has changed it.".into())))
}

/// Finds problems of a side, and none of a side that a split does not have, or no longer has.
fn on_shard(plan: &Plan, state: &SplitState, side: Side, identity: &str) -> Result<Vec<DiagnosedProblem>> {
    let is_lost = match side {
        Side::Source => state.source_lost,
        Side::Target => state.target_lost,
    };
    // What an idle reverse split has there is its split's concern.
    let rests = state.goes_back && is_before_start(state);
    if is_lost || rests || state.finished || state.phase == Phase::Planning && !is_before_start(state) {
        return Ok(Vec::new());
    }
    let mut session = epoch::open(plan, identity, side, "diagnosis")?;
    let installed = side::installed(&mut session, plan, side)?;
    // One side is clean before the other is, while the worker removes both.
    if state.goal == Goal::RolledBack && state.phase != Phase::RolledBack && installed != Installed::Foreign {
        return Ok(Vec::new());
    }
    if state.phase == Phase::RolledBack || state.phase == Phase::Planning {
        return Ok(left(plan, state, installed).into_iter().collect());
    }
    if phases::is_decided(state.phase) {
        return decided(&mut session, plan, state, side);
    }
    match installed {
        Installed::Ours => {}
        Installed::Foreign => return Err(side::foreign(session.shard(), plan).into()),
        Installed::No => return Err(epoch::not_installed(session.shard(), plan.id)),
    }
    let mut found: Vec<DiagnosedProblem> = says(&mut session, plan, state, side)?.into_iter().collect();
    found.extend(newer_worker(&mut session, plan, state, side)?);
    found.extend(replicated(&mut session, plan, side)?);
    let missed = match side {
        Side::Source => "Nothing has noticed what was written meanwhile:",
        Side::Target => leaves::OF_STRANGERS,
    };
    let again = from_the_beginning(plan.id);
    // Another table of that name has none of its rows and triggers.
    let missing = format!(
        "Rename it back, if it was renamed; another one in its place is not the same. Otherwise: {again}"
    );
    found.extend(tables(&mut session, plan, side, [&missing, &format!("{missed} {again}")])?);
    Ok(found)
}

/// Finds what a rollback, or a plan that was never begun, should not have there.
fn left(plan: &Plan, state: &SplitState, installed: Installed) -> Option<DiagnosedProblem> {
    let repair = match installed {
        Installed::Ours if state.goal == Goal::RolledBack || state.goal == Goal::Planning => {
            format!("SELECT * FROM shard_cleanup() of that shard removes what split {} has left.", plan.id)
        }
        // It is about to be undone, or installed.
        Installed::Ours | Installed::No => return None,
        Installed::Foreign => {
            return Some((
                format!("it has objects of another split {}, which this master does not know", plan.id),
                Some("SELECT shard_adopt() of that shard, roll this plan back, and plan again.".into()),
            ));
        }
    };
    Some((format!("it still has objects of split {}, which has ended", plan.id), Some(repair)))
}

/// Finds what a side has forgotten of a decided cutover. A cutover that is not completed yet is skipped.
fn decided(
    session: &mut Connection,
    plan: &Plan,
    state: &SplitState,
    side: Side,
) -> Result<Vec<DiagnosedProblem>> {
    let wanted = match side {
        Side::Source => side::SideState::Moved,
        Side::Target => side::SideState::Open,
    };
    let (Some(version), CutoverStep::Moved) = (state.version_cutover, state.cutover_step) else {
        return Ok(Vec::new());
    };
    let told = side_state_check::difference(session, plan, side, wanted, version)?;
    let mut found: Vec<DiagnosedProblem> = told
        .map(|text| (text, Some(format!("SELECT shard_split_resume({}) restores its state.", plan.id))))
        .into_iter()
        .collect();
    let again = match side {
        Side::Source => format!("ALTER TABLE ... ENABLE ALWAYS TRIGGER for those named 00_shardmaster_*. shard_split_finish({}) reports what to do about what was written meanwhile.", plan.id),
        Side::Target => "ALTER TABLE ... ENABLE ALWAYS TRIGGER for those of names like 00_shardmaster_*; a reverse split would miss what was written meanwhile, and cannot go on.".to_owned(),
    };
    found.extend(tables(session, plan, side, ["Rename it back, if it was renamed.", &again])?);
    found.extend(replicated(session, plan, side)?);
    Ok(found)
}

/// Finds a state in which no step leaves the side.
fn says(
    session: &mut Connection,
    plan: &Plan,
    state: &SplitState,
    side: Side,
) -> Result<Option<DiagnosedProblem>> {
    let now = side::state(session, plan.id, side)?;
    let fits = match side {
        Side::Source => {
            now == Some(side::SideState::Capture)
                || now == Some(side::SideState::Fenced) && state.cutover_step != CutoverStep::None
        }
        Side::Target => now == Some(side::SideState::Closed),
    };
    let now = now.map_or("nothing", side::SideState::as_str);
    let repair = format!("SELECT shard_split_resume({}) starts a worker that corrects it.", plan.id);
    Ok((!fits).then(|| {
        (format!("it reports \"{now}\", which is wrong in phase {}", state.phase.as_str()), Some(repair))
    }))
}

/// Finds logical replication that was set up since the check.
fn replicated(session: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<DiagnosedProblem>> {
    let found = readers::find(session, plan, side)?;
    Ok(found.into_iter().map(|reader| (reader.text, Some(reader.hint))).collect())
}

fn newer_worker(
    session: &mut Connection,
    plan: &Plan,
    state: &SplitState,
    side: Side,
) -> Result<Option<DiagnosedProblem>> {
    let known = epoch::known_generation(session, plan, side)?.unwrap_or_default();
    Ok((known > state.generation).then(|| {
        let text =
            format!("it records worker {known} of split {}, this master only {}", plan.id, state.generation);
        (text, Some("Another master works on it, or this one was restored. Stop the other one.".into()))
    }))
}

/// Finds tables that are missing, and those with writers that the split does not capture, each with a repair.
fn tables(
    session: &mut Connection,
    plan: &Plan,
    side: Side,
    [missing, again]: [&str; 2],
) -> Result<Vec<DiagnosedProblem>> {
    let now = seen::look(session, plan, side)?;
    let found = plan.tables.iter().zip(&now.tables).filter_map(|(policy, shape)| {
        let name = &policy.table_name;
        if shape.oid.is_none() {
            return Some((format!("table {name} does not exist"), Some(missing.to_owned())));
        }
        let leaf = unwatched(shape)?;
        Some((
            format!("a trigger of the split on {leaf} is missing or does not always fire"),
            Some(again.to_owned()),
        ))
    });
    Ok(found.collect())
}

fn unwatched(shape: &TableShape) -> Option<&str> {
    shape.leaves().iter().find(|leaf| !leaf.captured).map(|leaf| leaf.name.as_str())
}
