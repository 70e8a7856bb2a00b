//! Planning: everything that is wrong on paper, found before any server is asked.

use super::phase::Phase;
use crate::catalog::keyspace::Locked;
use crate::catalog::shard::{self, Shard, ShardStatus};
use crate::catalog::split;
use crate::catalog::{in_use, keyspace, routing};
use crate::error::{Failure, SqlState};
use crate::placement::tenants;
use crate::routing::assign::canonical_keys;
use crate::routing::name_list;
use crate::sql;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("the list of tenants is empty")]
    NoTenants,
    #[error("source and target are the same shard \"{0}\"")]
    SameShard(String),
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
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        let (state, hint) = match &error {
            PlanError::NoTenants => {
                (SqlState::INVALID_VALUE, "Name at least one key that is routed to the source.")
            }
            PlanError::SameShard(_) => (SqlState::INVALID_VALUE, "Name two different shards."),
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
                "Finish that split with shard_split_finish() or undo it with shard_split_rollback() first.",
            ),
        };
        Failure::new(state, error.to_string()).hint(hint)
    }
}

/// A plan as it was asked for.
pub struct Request<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub tenants: Vec<Option<String>>,
    pub description: Option<&'a str>,
    pub keyspace: &'a str,
}

/// Stores a plan; returns its id.
pub fn create(request: Request<'_>) -> std::result::Result<i64, Failure> {
    let keyspace = keyspace::lock(request.keyspace)?;
    let source = shard::by_key(request.source)?;
    let target = shard::by_key(request.target)?;
    if request.tenants.is_empty() {
        return Err(PlanError::NoTenants.into());
    }
    let keys = canonical_keys(&keyspace, request.tenants)?;
    check(&keyspace, &source, &target, &keys)?;
    tenants::check_room(&target, &keys)?;
    let ids = sql::write_returning(
        "INSERT INTO shardmaster.split_plan
                (keyspace, source_shard, target_shard, description, tenants, token, source_lock, target_lock,
                 routing_version_at_start)
         VALUES ($1, $2, $3, $4, $5,
                 encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex'),
                 ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17))::bit(64)::bigint,
                 ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17))::bit(64)::bigint, $6)
         RETURNING id",
        &[
            keyspace.name.as_str().into(),
            source.shard_key.as_str().into(),
            target.shard_key.as_str().into(),
            request.description.into(),
            keys.clone().into(),
            keyspace::version(&keyspace.name).into(),
        ],
        |row| row.value::<i64>(1),
    );
    let id = ids.first().copied().unwrap_or_default();
    tenants::reserve_for_split(id, &target, &keyspace.name, &keys)?;
    sql::write(
        "INSERT INTO shardmaster.split_key (split_id, keyspace, key) SELECT $1, $2, unnest($3)",
        &[id.into(), keyspace.name.as_str().into(), keys.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, row_number() OVER (ORDER BY table_name), table_name, shard_by
           FROM shardmaster.table_policy WHERE keyspace = $2",
        &[id.into(), keyspace.name.as_str().into()],
    );
    split::event(id, None, Some(Phase::Planning), &format!("{} -> {}", source.shard_key, target.shard_key));
    split::notify(id, Phase::Planning.as_str(), "reached");
    Ok(id)
}

/// The refusals, in the order in which an operator would mend them.
fn check(
    keyspace: &Locked,
    source: &Shard,
    target: &Shard,
    tenants: &[String],
) -> std::result::Result<(), PlanError> {
    if source.shard_key == target.shard_key {
        return Err(PlanError::SameShard(source.shard_key.clone()));
    }
    for shard in [source, target] {
        if !shard.holds_rows() {
            return Err(PlanError::HoldsNoRows { shard: shard.shard_key.clone(), kind: shard.kind.clone() });
        }
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
    check_keys(keyspace, source, tenants)
}

fn has_tables(keyspace: &str) -> bool {
    sql::read_one(
        "SELECT 1 FROM shardmaster.table_policy WHERE keyspace = $1 LIMIT 1",
        &[keyspace.into()],
        |_| (),
    )
    .is_some()
}

fn check_keys(keyspace: &Locked, source: &Shard, tenants: &[String]) -> std::result::Result<(), PlanError> {
    if let Some((split, key)) = in_use::split_of_keys(&keyspace.name, tenants) {
        return Err(PlanError::Overlap { key, split });
    }
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

/// A plan that was rolled back is validated again before it runs again.
pub fn revive(id: i64) -> std::result::Result<(), Failure> {
    let plan = split::load(id)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    check(&keyspace, &plan.source, &plan.target, &plan.tenants)?;
    tenants::reserve_for_split(id, &plan.target, &keyspace.name, &plan.tenants)?;
    sql::write("UPDATE shardmaster.split_key SET active = true WHERE split_id = $1", &[id.into()]);
    sql::write("DELETE FROM shardmaster.split_table WHERE split_id = $1", &[id.into()]);
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, row_number() OVER (ORDER BY table_name), table_name, shard_by
           FROM shardmaster.table_policy WHERE keyspace = $2",
        &[id.into(), keyspace.name.as_str().into()],
    );
    Ok(())
}
