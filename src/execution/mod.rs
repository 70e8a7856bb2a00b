//! Runs one statement on all shards, on each of them once. The master commits a record of what it is about to do
//! before it tells a shard to do it, so that a session that resumes knows what may have been done, and asks the shard.
//!
//! On each shard: 1. The session that will run the statement is recorded (`running`). 2. The statement runs, in a
//! transaction whose number survives a crash of the shard, since another session has made the shard write its WAL up
//! to that point; the number and the server are recorded (`committing`). 3. The shard is told to commit (`done`).
//!
//! In two phases (`two_phase`), either all shards do it or none.

mod error;
pub mod held_execution;
mod left;
mod points;
mod recovery;
mod run;
mod settle;
mod shards;
mod statement;
mod two_phase;

pub use crate::catalog::execution::to_look_at;
pub use left::{any_left, look_again, orphans, settle_left};

use crate::catalog::caller::Caller;
use crate::catalog::declaration;
use crate::catalog::execution::{self, Execution, ExecutionState, NewExecution};
use crate::catalog::keyspace;
use crate::error::Failure;
use crate::execution::held_execution::{ExecutionStage, HeldExecution};
use crate::query::login;
use crate::query::run::chosen;
use crate::server::{held_run, standby};
use run::Wave;
use shards::{require_no_run, require_no_split};
use std::time::Duration;

pub struct ExecutionRequest<'a> {
    pub statement: &'a str,
    pub keyspace: &'a str,
    /// `None` for all active shards.
    pub shards: Option<&'a [String]>,
    /// How many shards run it at the same time.
    pub wave: i32,
    pub in_transaction: bool,
    /// All shards do it, or none.
    pub two_phase: bool,
    /// The statement sees only the rows that the login's policies show; otherwise, a policy that would hide rows is an
    /// error.
    pub by_policies: bool,
    pub timeout: Duration,
}

/// Records what is to be done.
pub fn begin(request: &ExecutionRequest<'_>) -> Result<i64, Failure> {
    statement::require_fit(request.statement)?;
    standby::commit_durably();
    Caller::as_owner(|caller| {
        keyspace::find(request.keyspace)?;
        let role = login::role_of(caller)?;
        let shards = chosen(request.shards)?;
        if shards.is_empty() {
            return Err(error::no_active_shard());
        }
        for shard in &shards {
            let _ = login::entrance(&role, shard, request.timeout)?;
            require_no_split(&shard.shard_key)?;
            require_no_run(&shard.shard_key)?;
        }
        let new = NewExecution {
            keyspace: request.keyspace,
            statement: request.statement,
            wave: request.wave,
            in_transaction: request.in_transaction,
            two_phase: request.two_phase.then_some(role.id),
            by_policies: request.by_policies,
            started_by: &declaration::by(caller),
        };
        let names: Vec<String> = shards.into_iter().map(|shard| shard.shard_key).collect();
        Ok(execution::insert(&new, &names))
    })
}

/// Takes the execution for this session, and finds out the outcomes that are unknown.
pub fn take(id: i64, retry: bool, timeout: Duration) -> Result<(), Failure> {
    standby::commit_durably();
    let found = Caller::as_owner(|caller| {
        let found = execution::find(id)?;
        if caller.is_superuser() || execution::may_resume(caller.id(), &found.started_by) {
            Ok(found)
        } else {
            Err(error::started_by_other(id, &found.started_by))
        }
    })?;
    let mut held = HeldExecution::take(id, timeout)?;
    require_own(&found, retry)?;
    let taken = take_up(&found, retry, timeout).map_err(|why| error::of_execution(id, why))?;
    held.later = taken.unreached.map(|why| error::of_execution(id, why));
    if found.two_phase {
        // It starts on all shards, or on none.
        held.failure = held.later.take();
    }
    if held.failure.is_none() {
        held.failure = taken.unknown.map(|shard| error::unknown_outcome(id, &shard));
    }
    held_run::keep(held);
    Ok(())
}

/// Another master owns what it has on shards, unless the caller declares that this master replaces it.
fn require_own(found: &Execution, is_said: bool) -> Result<(), Failure> {
    match (found.is_others, is_said) {
        (false, _) => Ok(()),
        (true, true) => {
            Caller::as_owner(|_| execution::take_over(found.id));
            Ok(())
        }
        (true, false) => Err(error::other_master(found.id)),
    }
}

/// The obstacles to continuing.
struct ExecutionObstacle {
    /// Why the first unsettled shard could not be settled.
    unreached: Option<Failure>,
    /// The first shard whose outcome nobody knows.
    unknown: Option<String>,
}

fn take_up(found: &Execution, retry: bool, timeout: Duration) -> Result<ExecutionObstacle, Failure> {
    let places = Caller::as_owner(|_| execution::places(found.id));
    let mut unreached = if found.two_phase {
        recovery::settle(found.id, timeout, true)?
    } else {
        settle::all(found, &places, timeout)?
    };
    if found.may_be_behind {
        doubt(found.id)?;
    }
    // The outcomes that were missing are known now.
    for place in Caller::as_owner(|_| execution::places(found.id)) {
        let runs_again =
            place.state == ExecutionState::Failed || retry && place.state == ExecutionState::Unknown;
        if !runs_again {
            continue;
        }
        match settle::end_left(found, &place, timeout) {
            Ok(()) => Caller::as_owner(|_| execution::waits(found.id, &place.shard))?,
            Err(why) => {
                unreached.get_or_insert(why);
            }
        }
    }
    Ok(ExecutionObstacle { unreached, unknown: first_unknown(found.id).filter(|_| !retry) })
}

/// Marks shards as unknown that have not run it according to this master: they may have, if the master lacks its last
/// records.
fn doubt(id: i64) -> Result<(), Failure> {
    Caller::as_owner(|_| {
        let places = execution::places(id);
        for place in places
            .iter()
            .filter(|place| matches!(place.state, ExecutionState::Waiting | ExecutionState::Failed))
        {
            let why = error::master_may_lack_outcome(&place.shard);
            execution::ends_badly(id, &place.shard, ExecutionState::Unknown, &why)?;
        }
        if !places.iter().any(|place| place.state.is_open()) {
            execution::is_whole(id);
        }
        Ok(())
    })
}

fn first_unknown(id: i64) -> Option<String> {
    let places = Caller::as_owner(|_| execution::places(id));
    places.into_iter().find(|place| place.state == ExecutionState::Unknown).map(|place| place.shard)
}

/// Does the next step, which the caller commits. Returns false if everything is done. A failure is raised by the step
/// after it, so that it is recorded by then.
pub fn step(id: i64, timeout: Duration) -> Result<bool, Failure> {
    let mut held = HeldExecution::back(id)?;
    if let Some(failure) = held.failure.take() {
        return Err(failure);
    }
    standby::commit_durably();
    let next = next(&mut held, timeout).map_err(|why| error::of_execution(id, why))?;
    let goes_on = next.is_some();
    if let Some(failure) = held.later.take_if(|_| !goes_on) {
        return Err(failure);
    }
    if let Some((stage, failure)) = next {
        held.stage = stage;
        held.failure = failure.map(|why| error::of_execution(id, why));
        held_run::keep(held);
    }
    Ok(goes_on)
}

type NextStep = Option<(ExecutionStage, Option<Failure>)>;

fn next(held: &mut HeldExecution, timeout: Duration) -> Result<NextStep, Failure> {
    match std::mem::replace(&mut held.stage, ExecutionStage::Between) {
        ExecutionStage::Between => {
            let Some(mut wave) = Wave::open(held.id, timeout)? else { return Ok(None) };
            if wave.execution.two_phase {
                wave.require_slots()?;
            }
            let failure = wave.write_down()?;
            Ok(Some((ExecutionStage::Open(wave), failure)))
        }
        ExecutionStage::Open(mut wave) if wave.execution.two_phase => match wave.prepare()? {
            None => Ok(Some((ExecutionStage::Prepared(wave), None))),
            Some(failure) => {
                let failure = left::give_up(held.id, wave.into_reasons(), failure, timeout)?;
                Ok(Some((ExecutionStage::Between, Some(failure))))
            }
        },
        ExecutionStage::Open(mut wave) => {
            let failure = wave.run()?;
            Ok(Some((ExecutionStage::Ran(wave, failure), None)))
        }
        // The shards that have run it commit, even if others of the same wave have failed.
        ExecutionStage::Ran(mut wave, failure) => {
            let later = wave.commit()?;
            Ok(Some((ExecutionStage::Between, failure.or(later))))
        }
        ExecutionStage::Prepared(mut wave) => {
            wave.decide()?;
            Ok(Some((ExecutionStage::Decided(wave), None)))
        }
        ExecutionStage::Decided(mut wave) => {
            let is_known = wave.commit_prepared()?;
            drop(wave);
            let failure = if is_known { None } else { recovery::settle(held.id, timeout, false)? };
            let unknown = first_unknown(held.id).map(|shard| error::unknown_outcome(held.id, &shard));
            Ok(Some((ExecutionStage::Between, failure.or(unknown))))
        }
    }
}

/// Abandons the execution: where it is not done, it never will be. In two phases it is settled first, because prepared
/// transactions would stay and hold their locks; `force` abandons it even if it cannot be settled.
pub fn abandon(id: i64, force: bool, timeout: Duration) -> Result<(), Failure> {
    standby::commit_durably();
    let found = Caller::as_owner(|_| execution::find(id))?;
    let _held = HeldExecution::take(id, timeout)?;
    require_own(&found, force)?;
    let unreached = if found.two_phase {
        recovery::settle(id, timeout, false).map_err(|why| error::of_execution(id, why))?
    } else {
        None
    };
    match unreached {
        Some(why) if !force => Err(error::not_abandoned(id, why)),
        _ => {
            Caller::as_owner(|_| execution::abandon(id));
            Ok(())
        }
    }
}
