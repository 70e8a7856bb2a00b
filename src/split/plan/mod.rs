//! Planning: everything that is wrong on paper, found before any server is asked.

pub mod check;
pub mod policies;

use crate::catalog::keyspace::{self, Locked};
use crate::catalog::place::{self, Sameness};
use crate::catalog::routing::Served;
use crate::catalog::shard::{self, Shard, ShardStatus};
use crate::catalog::split_state::Phase;
use crate::catalog::{in_use, misplaced_run, naming, routing, settlement, split, way_back};
use crate::error::{Failure, SqlState};
use crate::keys::interval::Interval;
use crate::keys::strategy::Strategy;
use crate::placement::tenants;
use crate::routing::assign::canonical_keys;
use crate::routing::{RoutingError, buckets, name_list, ranges};
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
    NotOnSource { shard: String, keys: String },
    #[error("key \"{key}\" is moved by split {split} already")]
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
                (SqlState::INVALID_VALUE, "shard_entries() lists what is routed where.")
            }
            PlanError::SameShard(_) => (SqlState::INVALID_VALUE, "Name two different shards."),
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
                (SqlState::NOT_IN_STATE, "Say which tables the keys shard, with shard_table_add().")
            }
            PlanError::NotOnSource { .. } => (
                SqlState::INVALID_VALUE,
                "shard_entries() lists the keys with their shards; shard_assign() routes a key that is not routed yet.",
            ),
            PlanError::Overlap { .. } => (
                SqlState::IN_USE,
                "Bring it to its end with CALL shard_split_run({id}, 'finished'), or undo it with CALL shard_split_run({id}, 'rolled_back') before its cutover.",
            ),
            PlanError::InRun { .. } => (
                SqlState::IN_USE,
                "Wait for its end, or give it up with shard_misplaced_abandon(); shard_misplaced_runs() lists it.",
            ),
        };
        let failure = Failure::new(state, error.to_string());
        match error {
            PlanError::Overlap { split, .. } => failure.hint(of_split(hint, split)),
            _ => failure.hint(hint),
        }
    }
}

/// Two names of one place, which only the servers may know.
fn one_place(source: &Shard, target: &Shard) -> String {
    format!(
        "shards \"{}\" and \"{}\" are one place: namespace \"{}\" of one database",
        source.shard_key, target.shard_key, source.namespace
    )
}

const STAY: &str = "No row has to move: assign the keys to the other name, with force => true.";

/// What is to be moved.
pub enum What {
    /// Keys of a directory, buckets of a hash keyspace.
    Named(Vec<Option<String>>),
    /// The keys of an interval; None: no bound.
    Range(Option<String>, Option<String>),
    /// Everything that the source holds of the keyspace now.
    All,
}

impl What {
    fn kind(&self, keyspace: &Locked) -> &'static str {
        match self {
            What::All => "all",
            What::Range(..) => "range",
            What::Named(_) if keyspace.strategy.buckets().is_some() => "buckets",
            What::Named(_) => "tenants",
        }
    }

    /// The entries of routing that move; ranges are cut for it.
    fn entries(self, keyspace: &Locked, source: &Shard) -> std::result::Result<Moving, Failure> {
        let keys: Vec<String> = match (self, keyspace.strategy) {
            (What::All, _) => {
                let Served { keys, are_written_there } = routing::entries_on(keyspace, &source.shard_key);
                if keys.is_empty() {
                    let (shard, keyspace) = (source.shard_key.clone(), keyspace.name.clone());
                    return Err(PlanError::NothingOnSource { shard, keyspace }.into());
                }
                return Ok(Moving { keys, are_on_source: are_written_there });
            }
            (What::Range(lower, upper), _) => {
                // Refuses other strategies before the bounds are read.
                ranges::order(keyspace)?;
                let wanted = Interval::new(keyspace.key_type(), lower.as_deref(), upper.as_deref())?;
                ranges::carve(keyspace, &wanted, &source.shard_key)?
            }
            (What::Named(names), _) if names.is_empty() => return Err(PlanError::NoTenants.into()),
            (What::Named(names), Strategy::Directory) => canonical_keys(keyspace, names)?,
            (What::Named(names), Strategy::Hash { .. }) => {
                let names = names.into_iter().collect::<Option<Vec<_>>>().ok_or(RoutingError::NullKey)?;
                let mut buckets = buckets::names(keyspace, names)?;
                buckets.sort_unstable();
                buckets.dedup();
                buckets
            }
            (What::Named(_), Strategy::Range { .. }) => {
                return Err(RoutingError::other_strategy(keyspace).into());
            }
        };
        Ok(Moving { keys, are_on_source: false })
    }
}

/// What a plan is to move.
struct Moving {
    keys: Vec<String>,
    /// Known already: two million of them are not asked for twice.
    are_on_source: bool,
}

/// A plan as it was asked for.
pub struct Request<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub what: What,
    pub description: Option<&'a str>,
    pub keyspace: &'a str,
}

/// Stores a plan; returns its id.
pub fn create(request: Request<'_>) -> std::result::Result<i64, Failure> {
    let keyspace = keyspace::lock(request.keyspace)?;
    let source = shard::by_key(request.source)?;
    let target = shard::by_key(request.target)?;
    check_shards(&keyspace, &source, &target)?;
    check_named(&keyspace, [&source, &target])?;
    let kind = request.what.kind(&keyspace);
    let Moving { keys, are_on_source } = request.what.entries(&keyspace, &source)?;
    check_free(&keyspace, &keys)?;
    if !are_on_source {
        require_routed(&keyspace, &source, &keys)?;
    }
    let takes_slots = keyspace.strategy.is_directory();
    if takes_slots {
        tenants::check_free_slots(&target, &keys)?;
    }
    let ids = sql::write_returning(
        "WITH s AS MATERIALIZED (
             SELECT encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex') AS secret)
         INSERT INTO shardmaster.split_plan
                (keyspace, source_shard, target_shard, description, scope_kind, tenants, secret, token, routing_version_at_start)
         SELECT $1, $2, $3, $4, $7, $5, s.secret, encode(sha256(convert_to(s.secret, 'UTF8')), 'hex'), $6 FROM s
         RETURNING id",
        &[
            keyspace.name.as_str().into(),
            source.shard_key.as_str().into(),
            target.shard_key.as_str().into(),
            request.description.into(),
            keys.clone().into(),
            keyspace::version(&keyspace.name).into(),
            kind.into(),
        ],
        |row| row.value::<i64>(1),
    );
    let id = ids.first().copied().unwrap_or_default();
    if takes_slots {
        tenants::reserve_for_split(id, &target, &keyspace.name, &keys)?;
    }
    sql::write(
        "INSERT INTO shardmaster.split_key (split_id, keyspace, key)
         SELECT id, keyspace, unnest(tenants) FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, row_number() OVER (ORDER BY table_name), table_name, shard_by
           FROM shardmaster.table_policy WHERE keyspace = $2 AND policy = 'sharded'",
        &[id.into(), keyspace.name.as_str().into()],
    );
    split::event(id, None, Some(Phase::Planning), &format!("{} -> {}", source.shard_key, target.shard_key));
    split::notify(id, Phase::Planning.as_str(), "reached");
    Ok(id)
}

/// The refusals, in the order in which an operator would mend them.
fn check_shards(keyspace: &Locked, source: &Shard, target: &Shard) -> std::result::Result<(), PlanError> {
    if source.shard_key == target.shard_key {
        return Err(PlanError::SameShard(source.shard_key.clone()));
    }
    for shard in [source, target] {
        if !shard.holds_rows() {
            return Err(PlanError::HoldsNoRows { shard: shard.shard_key.clone(), kind: shard.kind.clone() });
        }
    }
    if place::compare(source, target) == Sameness::Same {
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

/// Whoever has named a schema of this very database may still do so, and rows go nowhere where
/// whoever has added it would gain them. Of addresses that no worker has met the check and the
/// worker find out.
fn check_named(keyspace: &Locked, shards: [&Shard; 2]) -> std::result::Result<(), Failure> {
    let [source, target] = shards;
    let mut here =
        [(source, target), (target, source)].into_iter().filter(|(shard, _)| place::is_known_here(shard));
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

fn check_keys(keyspace: &Locked, source: &Shard, tenants: &[String]) -> std::result::Result<(), PlanError> {
    check_free(keyspace, tenants)?;
    require_routed(keyspace, source, tenants)
}

/// Nobody else moves one of them.
fn check_free(keyspace: &Locked, tenants: &[String]) -> std::result::Result<(), PlanError> {
    if let Some((split, key)) = in_use::split_of_keys(&keyspace.name, tenants) {
        return Err(PlanError::Overlap { key, split });
    }
    if let Some((run, key)) = misplaced_run::of_entries(&keyspace.name, tenants, true).into_iter().next() {
        return Err(PlanError::InRun { key, run });
    }
    Ok(())
}

fn require_routed(
    keyspace: &Locked,
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
    Err(PlanError::NotOnSource { shard: source.shard_key.clone(), keys: name_list(elsewhere) })
}

/// The way back of a split is asked for: what is checked of a new plan, and what it takes, is
/// checked and taken now.
pub fn turn_back(there: i64, back: i64) -> std::result::Result<(), Failure> {
    let plan = split::load(back)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    way_back::pass_keys(there, back);
    settlement::forget(there);
    check_shards(&keyspace, &plan.source, &plan.target)?;
    check_named(&keyspace, [&plan.source, &plan.target])?;
    require_routed(&keyspace, &plan.source, &plan.entries)?;
    if keyspace.strategy.is_directory() {
        tenants::reserve_for_split(back, &plan.target, &keyspace.name, &plan.entries)?;
    }
    sql::write(
        "UPDATE shardmaster.split_plan SET routing_version_at_start = $2 WHERE id = $1",
        &[back.into(), keyspace::version(&keyspace.name).into()],
    );
    Ok(())
}

/// The same for one that has begun, which this master had lost: what has happened is not judged,
/// and where its keys are back already nothing is taken.
pub fn take_up_way_back(there: i64, back: i64) -> std::result::Result<(), Failure> {
    let plan = split::load(back)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    way_back::pass_keys(there, back);
    settlement::forget(there);
    let is_back = require_routed(&keyspace, &plan.source, &plan.entries).is_err();
    if keyspace.strategy.is_directory() && !is_back {
        tenants::reserve_beyond_for_split(back, &plan.target, &keyspace.name, &plan.entries)?;
    }
    Ok(())
}

/// A plan that was rolled back is validated again before it runs again.
pub fn revive(id: i64) -> std::result::Result<(), Failure> {
    let plan = split::load(id)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    check_shards(&keyspace, &plan.source, &plan.target)?;
    check_named(&keyspace, [&plan.source, &plan.target])?;
    check_keys(&keyspace, &plan.source, &plan.entries)?;
    if keyspace.strategy.is_directory() {
        tenants::reserve_for_split(id, &plan.target, &keyspace.name, &plan.entries)?;
    }
    sql::write("UPDATE shardmaster.split_key SET active = true WHERE split_id = $1", &[id.into()]);
    sql::write("DELETE FROM shardmaster.split_table WHERE split_id = $1", &[id.into()]);
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, row_number() OVER (ORDER BY table_name), table_name, shard_by
           FROM shardmaster.table_policy WHERE keyspace = $2 AND policy = 'sharded'",
        &[id.into(), keyspace.name.as_str().into()],
    );
    Ok(())
}
