//! Rows on a shard that their key's route does not name are moved to the routed shard, or deleted.
//!
//! 1. The keys are held, by a row of the master that is committed before any shard is asked: no split, no assignment
//!    and no other run has them meanwhile, whatever crashes. 2. The sessions that will work on shards are recorded, so
//!    that they can be ended before others take their place. 3. All that would be refused is searched. 4. Batch by
//!    batch the wrong shard returns rows by deleting them, the right one has them committed and written, and then the
//!    deletion is committed. Whatever is interrupted, a row is on one of them, or on both: then it is the same, and
//!    deleted by the next call.

mod batch;
mod conflicts;
mod doubt;
mod error;
mod facts;
pub mod fk_group;
pub mod held_move;
pub mod key_batch;
mod leftover;
mod master;
mod place;
mod points;
mod run;
pub mod selection;
mod session;
mod statements;
pub mod table_pair;

use crate::catalog::caller::Caller;
use crate::catalog::keyspace::{self, LockedKeyspace};
use crate::catalog::misplaced_run::{self, Action, Deletes, RunEnd, RunKey};
use crate::catalog::table_policy::{self, TableName, TablePolicy};
use crate::catalog::{
    endpoint, event, execution, in_use, misplaced_doubt, outdated, routing, routing_history,
};
use crate::error::{Failure, required};
use crate::misplaced::held_move::{HeldMove, lock};
use crate::query::login;
use crate::query::run::chosen;
use crate::server::{held_run, standby};
use run::{MoveStage, MoveWork};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub struct MoveRequest<'a> {
    pub action: Action,
    pub shard: &'a str,
    pub keys: Vec<Option<String>>,
    pub keyspace: &'a str,
    /// `None` for all tables of the keyspace.
    pub tables: Option<&'a [String]>,
    pub fire_triggers: bool,
    pub timeout: Duration,
}

/// Holds the keys, for this session.
pub fn begin(request: MoveRequest<'_>) -> Result<i64, Failure> {
    standby::commit_durably();
    let (id, work) = Caller::as_owner(|caller| {
        let keyspace = keyspace::lock(request.keyspace)?;
        // Otherwise rows would be moved back to where they have left.
        outdated::require_current(&keyspace.name)?;
        let role = login::role_of(caller)?;
        let tables = tables(request.keyspace, request.tables)?;
        let keys = keys(&keyspace, &request)?;
        let routed: BTreeSet<String> = keys.iter().filter_map(|key| key.routed_to.clone()).collect();
        let shards: Vec<String> = std::iter::once(request.shard.to_owned()).chain(routed).collect();
        for shard in &chosen(Some(&shards))? {
            let _ = login::entrance(&role, shard, request.timeout)?;
            endpoint::hold(shard);
        }
        if let Some((id, shard)) = execution::of_shards(&shards) {
            return Err(error::execution_on_shard(&shard, id));
        }
        let id = misplaced_run::insert(request.action, &keyspace.name, request.shard, &keys, &caller.name());
        told(id, &keyspace.name, request.shard, "begun");
        let work = MoveWork {
            action: request.action,
            keyspace: keyspace.name.clone(),
            shard: request.shard.to_owned(),
            keys,
            tables,
            fire_triggers: request.fire_triggers,
            timeout: request.timeout,
            stage: MoveStage::Held,
        };
        Ok((id, work))
    })?;
    HeldMove::begin(id, work)?;
    Ok(id)
}

fn told(id: i64, keyspace: &str, shard: &str, status: &str) {
    event::notify(
        &json!({ "event": "misplaced", "run_id": id, "keyspace": keyspace, "shard": shard, "status": status }),
    );
}

fn tables(keyspace: &str, names: Option<&[String]>) -> Result<Vec<TablePolicy>, Failure> {
    let all = table_policy::require(keyspace)?;
    let Some(names) = names else { return Ok(all) };
    let mut wanted = BTreeSet::new();
    for name in names {
        let quoted = TableName::parse(name).map(|table| table.quoted());
        let found = quoted.filter(|quoted| all.iter().any(|policy| policy.table_name == *quoted));
        wanted.insert(found.ok_or_else(|| error::unknown_table(keyspace, name))?);
    }
    Ok(all.into_iter().filter(|policy| wanted.contains(&policy.table_name)).collect())
}

/// Returns where the keys belong, which does not change while they are held.
fn keys(keyspace: &LockedKeyspace, request: &MoveRequest<'_>) -> Result<Vec<RunKey>, Failure> {
    let key_type = keyspace.key_type();
    let mut names = BTreeSet::new();
    for key in &request.keys {
        names.insert(key_type.canonical(&required(key.clone(), "keys")?).into_owned());
    }
    let names: Vec<String> = names.into_iter().collect();
    if names.is_empty() {
        return Err(error::no_keys());
    }
    let version = keyspace::version(&keyspace.name);
    let read_from = routing_history::shards_at(keyspace, &names, version);
    let entries: Vec<Option<String>> = names.iter().map(|key| routing::entry_of(keyspace, key)).collect();
    let named: Vec<String> = entries.iter().flatten().cloned().collect();
    let written_to = routing::current(&keyspace.name, &named);
    if let Some((split, key)) = in_use::split_of_keys(&keyspace.name, &named) {
        return Err(error::key_in_split(&key, split));
    }
    require_free(keyspace, &entries, &named)?;
    let mut keys = Vec::new();
    for ((key, entry), routed_to) in names.into_iter().zip(entries).zip(read_from) {
        let written = entry.as_ref().and_then(|entry| written_to.get(entry));
        if written != routed_to.as_ref() {
            return Err(error::between_shards(&key));
        }
        match &routed_to {
            Some(shard) if shard == request.shard => {
                return Err(error::in_place(shard, &key));
            }
            // No other shard is known to have its rows.
            None if request.action.compares() => {
                return Err(error::no_route(&keyspace.name, &key));
            }
            Some(_) | None => keys.push(RunKey { key, entry, routed_to }),
        }
    }
    Ok(keys)
}

/// Requires that no other run of a living session holds one of the entries.
fn require_free(
    keyspace: &LockedKeyspace,
    entries: &[Option<String>],
    named: &[String],
) -> Result<(), Failure> {
    let mut others: BTreeMap<i64, String> =
        misplaced_run::of_entries(&keyspace.name, named, true).into_iter().collect();
    if entries.iter().any(Option::is_none)
        && let Some(run) = misplaced_run::of_keyspace(&keyspace.name)
    {
        others.entry(run).or_default();
    }
    for (run, key) in others {
        lock(run).map_err(|_| error::key_in_run(&key, run))?;
    }
    Ok(())
}

/// Does what comes next, which must then be committed. Returns false once all is done. An error is raised by the step
/// after it, so that it is recorded by then.
pub fn step(id: i64) -> Result<bool, Failure> {
    let mut held = HeldMove::back(id)?;
    if let Some(failure) = held.failure.take() {
        return Err(failure);
    }
    standby::commit_durably();
    if !Caller::as_owner(|_| misplaced_run::is_running(id))? {
        return Err(error::ended(id));
    }
    match held.work.next(id) {
        Ok(true) => held_run::keep(held),
        Ok(false) => {
            end(id, &held.work, RunEnd::Done, None);
            return Ok(false);
        }
        Err(why) => {
            held.work.close();
            if leftover::end(id, held.work.timeout).is_err() {
                return Err(error::of_run(id, why));
            }
            end(id, &held.work, RunEnd::Failed, Some(&why));
            held.failure = Some(why);
            held_run::keep(held);
        }
    }
    Ok(true)
}

fn end(id: i64, work: &MoveWork, end: RunEnd, why: Option<&Failure>) {
    Caller::as_owner(|_| {
        misplaced_run::ends(id, end, why);
        let all_are_gone = match work.action {
            Action::Delete(Deletes::OnBoth | Deletes::All) => end == RunEnd::Done,
            Action::Move | Action::Delete(Deletes::Conflicting) => false,
        };
        if all_are_gone {
            let tables: Vec<String> = work.tables.iter().map(|table| table.table_name.clone()).collect();
            misplaced_doubt::forget_deleted(id, &tables);
        }
        told(id, &work.keyspace, &work.shard, end.as_str());
    });
}

/// Abandons a run: its keys are free again, and what it may have left on both shards is not handled any more. `force`:
/// whether sessions of it are left on a shard is not checked.
pub fn abandon(id: i64, force: bool, timeout: Duration) -> Result<(), Failure> {
    standby::commit_durably();
    if !Caller::as_owner(|_| misplaced_run::is_running(id))? {
        if Caller::as_owner(|_| misplaced_doubt::forget(id)) > 0 {
            return Ok(());
        }
        return Err(error::ended(id));
    }
    let _lock = lock(id)?;
    if !force {
        leftover::end(id, timeout)?;
    }
    Caller::as_owner(|_| misplaced_doubt::forget(id));
    if Caller::as_owner(|_| misplaced_run::ends(id, RunEnd::Abandoned, None)) {
        Ok(())
    } else {
        Err(error::ended(id))
    }
}
