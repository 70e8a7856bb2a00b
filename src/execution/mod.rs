//! One statement on all shards, on each of them once. The master commits what it is about to do before a shard is told
//! to do it, so that whoever resumes knows what may have been done, and asks the shard.
//!
//! On each shard: 1. the session that will run it is written down (`running`). 2. The statement runs, in a transaction
//! whose number survives a crash of the shard, since another session has made the shard write that much; number and
//! server are written down (`committing`). 3. The shard is told to commit (`done`).

mod error;
mod held;
mod run;
mod settle;
mod shards;
mod statement;

use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, New, Place, State};
use crate::catalog::keyspace;
use crate::error::Failure;
use crate::query::login;
use crate::query::run::chosen;
use crate::server::sql;
use error::ExecutionError;
use held::{Held, Stage};
use run::Wave;
use shards::{require_no_run, require_no_split};
use std::time::Duration;

pub struct Request<'a> {
    pub statement: &'a str,
    pub keyspace: &'a str,
    /// None: all active ones.
    pub shards: Option<&'a [String]>,
    /// How many shards run it beside each other.
    pub wave: i32,
    pub in_transaction: bool,
    pub timeout: Duration,
}

/// Writes down what is to be done.
pub fn begin(request: &Request<'_>) -> Result<i64, Failure> {
    statement::require_fit(request.statement)?;
    durably();
    Caller::as_owner(|caller| {
        keyspace::find(request.keyspace)?;
        let role = login::role_of(caller)?;
        let shards = chosen(request.shards)?;
        if shards.is_empty() {
            return Err(ExecutionError::NoShard.into());
        }
        for shard in &shards {
            let _ = login::entrance(&role, shard, request.timeout)?;
            require_no_split(&shard.shard_key)?;
            require_no_run(&shard.shard_key)?;
        }
        let new = New {
            keyspace: request.keyspace,
            statement: request.statement,
            wave: request.wave,
            in_transaction: request.in_transaction,
            started_by: &caller.name(),
        };
        let names: Vec<String> = shards.into_iter().map(|shard| shard.shard_key).collect();
        Ok(execution::insert(&new, &names))
    })
}

/// What the transaction writes outlives a crash of the master, whatever the caller's settings are: were it lost, a
/// shard would do it twice.
fn durably() {
    sql::write(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)
          WHERE pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off'",
        &[],
    );
}

/// Takes it for this session, and finds out what has become of what was not heard of.
pub fn take(id: i64, retry: bool, timeout: Duration) -> Result<(), Failure> {
    durably();
    Caller::as_owner(|caller| {
        let found = execution::find(id)?;
        match caller.is_superuser() || execution::may_resume(caller.id(), &found.started_by) {
            true => Ok(()),
            false => Err(Failure::from(ExecutionError::Others { id, role: found.started_by })),
        }
    })?;
    let mut held = Held::take(id)?;
    let places = Caller::as_owner(|_| execution::places(id));
    settle::all(id, &places, timeout)
        .and_then(|()| settle::end_left(&places, retry, timeout))
        .map_err(|why| error::of_execution(id, why))?;
    let unknown = Caller::as_owner(|_| again(id, retry))?;
    held.failure = unknown.map(|shard| ExecutionError::Unknown { id, shard }.into());
    held.keep();
    Ok(())
}

/// What has failed waits again. The first shard of which nobody knows, unless those wait again as well.
fn again(id: i64, retry: bool) -> Result<Option<String>, Failure> {
    let mut unknown = None;
    for Place { shard, state, .. } in execution::places(id) {
        match state {
            State::Failed => execution::waits(id, &shard)?,
            State::Unknown if retry => execution::waits(id, &shard)?,
            State::Unknown => {
                unknown.get_or_insert(shard);
            }
            State::Waiting | State::Running | State::Committing | State::Done | State::Abandoned => {}
        }
    }
    Ok(unknown)
}

/// Does what comes next, which is to be committed; false: all is done. What has failed is raised by the step after
/// it, so that it is known by then.
pub fn step(id: i64, timeout: Duration) -> Result<bool, Failure> {
    let mut held = Held::back(id)?;
    if let Some(failure) = held.failure.take() {
        return Err(failure);
    }
    durably();
    let next = next(&mut held, timeout).map_err(|why| error::of_execution(id, why))?;
    let goes_on = next.is_some();
    if let Some((stage, failure)) = next {
        held.stage = stage;
        held.failure = failure.map(|why| error::of_execution(id, why));
        held.keep();
    }
    Ok(goes_on)
}

type Next = Option<(Stage, Option<Failure>)>;

fn next(held: &mut Held, timeout: Duration) -> Result<Next, Failure> {
    match std::mem::replace(&mut held.stage, Stage::Between) {
        Stage::Between => {
            let Some((wave, failure)) = Wave::open(held.id, timeout)? else { return Ok(None) };
            Ok(Some((Stage::Open(wave), failure)))
        }
        Stage::Open(mut wave) => {
            let failure = wave.run()?;
            Ok(Some((Stage::Ran(wave, failure), None)))
        }
        // Those that have done it commit, whatever has become of others beside them.
        Stage::Ran(mut wave, failure) => {
            let later = wave.commit()?;
            Ok(Some((Stage::Between, failure.or(later))))
        }
    }
}

/// Where it is not done it never will be.
pub fn abandon(id: i64) -> Result<(), Failure> {
    durably();
    Caller::as_owner(|_| execution::find(id))?;
    let _held = Held::take(id)?;
    Caller::as_owner(|_| execution::abandon(id));
    Ok(())
}
