//! Why a plan is refused, by the master's catalog alone.

use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::shard::{Shard, ShardStatus};
use crate::catalog::split::Plan;
use crate::catalog::split_state::{Goal, row};
use crate::catalog::{in_use, misplaced_run, naming, routing};
use crate::error::{Failure, SqlState};
use crate::keys::strategy::Strategy;
use crate::placement::tenants;
use crate::routing::name_list;
use crate::server::sql;
use crate::words::of_split;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("the list of tenants is empty")]
    NoTenants,
    #[error("nothing of keyspace \"{keyspace}\" is routed to source shard \"{shard}\"")]
    NothingOnSource { shard: String, keyspace: String },
    #[error("source and target are the same shard \"{0}\"")]
    SameShard(String),
    #[error("{0}")]
    OnePlace(String),
    #[error("shard \"{shard}\" is of kind \"{kind}\" and holds no rows")]
    HoldsNoRows { shard: String, kind: String },
    #[error("source shard \"{0}\" is disabled")]
    SourceDisabled(String),
    #[error("target shard \"{shard}\" is {status}")]
    TargetNotActive { shard: String, status: &'static str },
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("not routed to source shard \"{shard}\": {keys}")]
    NotOnSource { shard: String, keys: String, strategy: Strategy },
    #[error("split {split} has moved some of these keys away from shard \"{shard}\", and is not finished")]
    MovedAway { split: i64, shard: String },
    #[error("the keys are on several shards: {0}")]
    SeveralSources(String),
    #[error("key \"{key}\" is already being moved by split {split}")]
    Overlap { key: String, split: i64 },
    #[error("key \"{key}\" is in use by run {run} of misplaced rows")]
    InRun { key: String, run: i64 },
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        let (state, hint) = match &error {
            PlanError::NoTenants => {
                (SqlState::INVALID_VALUE, "Name at least one key that is routed to the source.")
            }
            PlanError::NothingOnSource { .. } => {
                (SqlState::INVALID_VALUE, "shard_entries() lists all routes.")
            }
            PlanError::SameShard(_) => (SqlState::INVALID_VALUE, "Name two different shards."),
            PlanError::SeveralSources(_) => (
                SqlState::INVALID_VALUE,
                "Call shard_move for the keys of one shard at a time. shard_of() shows the shard of a key.",
            ),
            PlanError::OnePlace(_) => (SqlState::INVALID_VALUE, STAY),
            PlanError::HoldsNoRows { .. } => {
                (SqlState::INVALID_VALUE, "Only shards of kind \"postgres\" can be split.")
            }
            PlanError::SourceDisabled(_) => {
                (SqlState::NOT_IN_STATE, "Set the shard active or draining with shard_set_status().")
            }
            PlanError::TargetNotActive { .. } => (
                SqlState::NOT_IN_STATE,
                "Choose another target, or set this one active with shard_set_status().",
            ),
            PlanError::NoTables(_) => {
                (SqlState::NOT_IN_STATE, "Add the tables that the keys shard with shard_table_add().")
            }
            PlanError::NotOnSource { strategy, .. } => (SqlState::INVALID_VALUE, where_it_is(*strategy)),
            PlanError::MovedAway { .. } => (
                SqlState::IN_USE,
                "SELECT shard_split_reverse({id}) takes the move back. SELECT shard_split_finish({id}) ends it for good.",
            ),
            PlanError::Overlap { .. } => (
                SqlState::IN_USE,
                "Finish it with CALL shard_split_run({id}, 'finished'). Before its cutover, CALL shard_split_run({id}, 'rolled_back') undoes it.",
            ),
            PlanError::InRun { .. } => (
                SqlState::IN_USE,
                "Wait until it ends, or call shard_misplaced_abandon(). shard_misplaced_runs() lists it.",
            ),
        };
        let failure = Failure::new(state, error.to_string());
        match error {
            PlanError::Overlap { split, .. } if is_rolling_back(split) => failure.hint(of_split(
                "It is being rolled back. SELECT shard_split_wait({id}, 'rolled_back') waits until it ends.",
                split,
            )),
            PlanError::Overlap { split, .. } | PlanError::MovedAway { split, .. } => {
                failure.hint(of_split(hint, split))
            }
            _ => failure.hint(hint),
        }
    }
}

fn where_it_is(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Directory => {
            "shard_entries() lists the keys with their shards. shard_assign() routes a key that has no route yet."
        }
        Strategy::Hash { .. } => {
            "shard_entries() lists the buckets with their shards. shard_assign_bucket() routes a bucket that has no route yet."
        }
        Strategy::Range { .. } => {
            "shard_entries() lists the ranges with their shards. They may have been joined or divided since. Plan with the current ones."
        }
    }
}

/// Returns the error for two names of one place, which only the servers may know.
pub fn one_place(source: &Shard, target: &Shard) -> String {
    format!(
        "shards \"{}\" and \"{}\" are the same: namespace \"{}\" of one database",
        source.shard_key, target.shard_key, source.namespace
    )
}

pub const STAY: &str = "No row has to move. Assign the keys to the other name, with force => true.";

/// Checks the shards, and who has declared what moves there.
pub fn check_shards(keyspace: &Keyspace, source: &Shard, target: &Shard) -> std::result::Result<(), Failure> {
    check_ends(keyspace, source, target)?;
    check_named(keyspace, [source, target])
}

/// Checks the shards alone; the refusals are in the order in which an operator would fix them.
fn check_ends(keyspace: &Keyspace, source: &Shard, target: &Shard) -> std::result::Result<(), PlanError> {
    if source.shard_key == target.shard_key {
        return Err(PlanError::SameShard(source.shard_key.clone()));
    }
    for shard in [source, target] {
        if !shard.holds_rows() {
            return Err(PlanError::HoldsNoRows { shard: shard.shard_key.clone(), kind: shard.kind.clone() });
        }
    }
    if database_location::compare(source, target) == Sameness::Same {
        return Err(PlanError::OnePlace(one_place(source, target)));
    }
    if source.status == ShardStatus::Disabled {
        return Err(PlanError::SourceDisabled(source.shard_key.clone()));
    }
    if target.status != ShardStatus::Active {
        let status = target.status.as_str();
        return Err(PlanError::TargetNotActive { shard: target.shard_key.clone(), status });
    }
    if !has_tables(&keyspace.name) {
        return Err(PlanError::NoTables(keyspace.name.clone()));
    }
    Ok(())
}

/// Checks declarations: a role that has declared a schema of this very database must still have the right to, and rows
/// must not go where the role that added the schema would gain them. For addresses that no worker has connected to,
/// the check and the worker find this out.
fn check_named(keyspace: &Keyspace, [source, target]: [&Shard; 2]) -> std::result::Result<(), Failure> {
    let mut here = [(source, target), (target, source)]
        .into_iter()
        .filter(|(shard, _)| database_location::is_known_here(shard));
    here.find_map(|(shard, other)| naming::unsaid(&keyspace.name, shard, other))
        .map_or(Ok(()), |unsaid| Err(unsaid.failure()))
}

fn has_tables(keyspace: &str) -> bool {
    sql::read_one(
        "SELECT 1 FROM shardmaster.table_policy WHERE keyspace = $1 AND policy = 'sharded' LIMIT 1",
        &[keyspace.into()],
        |_| (),
    )
    .is_some()
}

pub fn check_keys(
    keyspace: &Keyspace,
    source: &Shard,
    tenants: &[String],
) -> std::result::Result<(), PlanError> {
    check_free(keyspace, tenants)?;
    require_routed(keyspace, source, tenants)
}

/// Checks that no other split moves one of the entries.
pub fn check_free(keyspace: &Keyspace, tenants: &[String]) -> std::result::Result<(), PlanError> {
    if let Some((split, key)) = in_use::split_of_keys(&keyspace.name, tenants) {
        return Err(PlanError::Overlap { key, split });
    }
    if let Some((run, key)) = misplaced_run::of_entries(&keyspace.name, tenants, true).into_iter().next() {
        return Err(PlanError::InRun { key, run });
    }
    Ok(())
}

pub fn require_routed(
    keyspace: &Keyspace,
    source: &Shard,
    tenants: &[String],
) -> std::result::Result<(), PlanError> {
    let current = routing::current(&keyspace.name, tenants);
    let mut elsewhere: Vec<&str> = tenants
        .iter()
        .filter(|key| current.get(*key) != Some(&source.shard_key))
        .map(String::as_str)
        .collect();
    elsewhere.sort_unstable();
    if elsewhere.is_empty() {
        return Ok(());
    }
    Err(PlanError::NotOnSource {
        shard: source.shard_key.clone(),
        keys: name_list(elsewhere),
        strategy: keyspace.strategy,
    })
}

fn is_rolling_back(id: i64) -> bool {
    row::read(id).is_ok_and(|state| state.goal == Goal::RolledBack)
}

/// Checks whether a rolled-back plan would be accepted again, in the order of its start. Nothing is locked: the answer
/// is valid for now.
pub fn again(plan: &Plan) -> std::result::Result<(), Failure> {
    let keyspace = keyspace::find(&plan.keyspace)?;
    check_shards(&keyspace, &plan.source, &plan.target)?;
    check_keys(&keyspace, &plan.source, &plan.entries)?;
    if keyspace.strategy.is_directory() {
        tenants::look_for_free_slots(&plan.target, &plan.entries)?;
    }
    Ok(())
}
