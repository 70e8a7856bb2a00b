//! Planning: finds every error that the catalog shows, before any server is asked.

pub mod check;
pub mod copies;
pub mod destination;
pub mod policies;
mod refusals;

use crate::catalog::keyspace::{self, LockedKeyspace};
use crate::catalog::routing::{self, Served};
use crate::catalog::shard::{self, Shard};
use crate::catalog::split::Plan;
use crate::catalog::split_state::plan::NewPlan;
use crate::catalog::split_state::{self, Phase};
use crate::catalog::{auto_finish, outdated, reverse_split, split};
use crate::error::Failure;
use crate::keys::interval::Interval;
use crate::keys::strategy::Strategy;
use crate::placement::tenants;
use crate::routing::assign::canonical_keys;
use crate::routing::{after_start, buckets, error, ranges};
use refusals::{PlanError, check_free, check_keys, check_shards, require_routed};

/// What is to be moved.
pub enum PlannedScope {
    /// Keys of a directory, buckets of a hash keyspace.
    Named(Vec<Option<String>>),
    /// The keys of an interval. A bound is `None` if there is no limit.
    Range(Option<String>, Option<String>),
    /// Everything that the source holds of the keyspace now.
    All,
}

impl PlannedScope {
    fn kind(&self, keyspace: &LockedKeyspace) -> &'static str {
        match self {
            PlannedScope::All => "all",
            PlannedScope::Range(..) => "range",
            PlannedScope::Named(_) if keyspace.strategy.buckets().is_some() => "buckets",
            PlannedScope::Named(_) => "tenants",
        }
    }

    /// Returns the moving routing entries; ranges are cut for this.
    fn entries(
        self,
        keyspace: &LockedKeyspace,
        source: &Shard,
    ) -> std::result::Result<MovingEntries, Failure> {
        let keys: Vec<String> = match (self, keyspace.strategy) {
            (PlannedScope::All, _) => {
                let Served { keys, are_written_there } = routing::entries_on(keyspace, &source.shard_key);
                if keys.is_empty() {
                    let (shard, keyspace) = (source.shard_key.clone(), keyspace.name.clone());
                    return Err(PlanError::NothingOnSource { shard, keyspace }.into());
                }
                return Ok(MovingEntries { keys, are_on_source: are_written_there });
            }
            (PlannedScope::Range(lower, upper), _) => {
                // This refuses other strategies before the bounds are read.
                ranges::order(keyspace)?;
                let wanted = Interval::new(keyspace.key_type(), lower.as_deref(), upper.as_deref())?;
                ranges::carve(keyspace, &wanted, &source.shard_key)?
            }
            (PlannedScope::Named(names), _) => named(keyspace, names)?,
        };
        Ok(MovingEntries { keys, are_on_source: false })
    }
}

/// Returns entries of a directory or of a hash keyspace, as the catalog spells them.
fn named(keyspace: &LockedKeyspace, names: Vec<Option<String>>) -> std::result::Result<Vec<String>, Failure> {
    if names.is_empty() {
        return Err(PlanError::NoTenants.into());
    }
    match keyspace.strategy {
        Strategy::Directory => canonical_keys(keyspace, names),
        Strategy::Hash { .. } => {
            let names = names.into_iter().collect::<Option<Vec<_>>>().ok_or_else(error::null_key)?;
            let mut buckets = buckets::names(keyspace, names)?;
            buckets.sort_unstable();
            buckets.dedup();
            Ok(buckets)
        }
        Strategy::Range { .. } => Err(error::other_strategy(keyspace)),
    }
}

/// The entries that a plan moves.
struct MovingEntries {
    keys: Vec<String>,
    /// Whether they are known to be on the source: this avoids asking twice for millions.
    are_on_source: bool,
}

/// A plan as it was requested.
pub struct PlanRequest<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub what: PlannedScope,
    pub description: Option<&'a str>,
    pub keyspace: &'a str,
}

/// Stores a plan and returns its id.
pub fn create(request: PlanRequest<'_>) -> std::result::Result<i64, Failure> {
    let keyspace = after_start::lock(request.keyspace)?;
    outdated::require_current(&keyspace.name)?;
    let source = shard::by_key(request.source)?;
    let target = shard::by_key(request.target)?;
    check_shards(&keyspace, &source, &target)?;
    let kind = request.what.kind(&keyspace);
    let MovingEntries { keys, are_on_source } = request.what.entries(&keyspace, &source)?;
    check_free(&keyspace, &keys)?;
    if !are_on_source {
        require_routed(&keyspace, &source, &keys)?;
    }
    let takes_slots = keyspace.strategy.is_directory();
    if takes_slots {
        tenants::check_free_slots(&target, &keys)?;
    }
    let id = split_state::plan::create(NewPlan {
        keyspace: &keyspace.name,
        source: &source.shard_key,
        target: &target.shard_key,
        description: request.description,
        kind,
        entries: keys.clone(),
        routing_version: keyspace::version(&keyspace.name),
    });
    if takes_slots {
        tenants::reserve_for_split(id, &target, &keyspace.name, &keys)?;
    }
    split::event(id, None, Some(Phase::Planning), &format!("{} -> {}", source.shard_key, target.shard_key));
    split::notify(id, Phase::Planning.as_str(), "reached");
    Ok(id)
}

/// Begins the reverse split of a split: what is checked and taken for a new plan is checked and taken now.
pub fn turn_back(there: i64, back: i64) -> std::result::Result<(), Failure> {
    let (plan, keyspace) = take_keys(there, back)?;
    check_shards(&keyspace, &plan.source, &plan.target)?;
    require_routed(&keyspace, &plan.source, &plan.entries)?;
    if keyspace.strategy.is_directory() {
        tenants::reserve_for_split(back, &plan.target, &keyspace.name, &plan.entries)?;
    }
    split_state::cutover::begins_with(back, keyspace::version(&keyspace.name));
    Ok(())
}

/// Passes the keys of a split to its reverse split, and returns that one with its locked keyspace.
fn take_keys(there: i64, back: i64) -> std::result::Result<(Plan, LockedKeyspace), Failure> {
    let plan = split::load(back)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    reverse_split::pass_keys(there, back);
    auto_finish::forget(there);
    Ok((plan, keyspace))
}

/// Adopts a reverse split that has begun and that this master had lost: what has happened is not checked, and if its
/// keys are back already nothing is taken.
pub fn take_up_way_back(there: i64, back: i64) -> std::result::Result<(), Failure> {
    let (plan, keyspace) = take_keys(there, back)?;
    let is_back = require_routed(&keyspace, &plan.source, &plan.entries).is_err();
    if keyspace.strategy.is_directory() && !is_back {
        tenants::reserve_beyond_for_split(back, &plan.target, &keyspace.name, &plan.entries)?;
    }
    Ok(())
}

/// Validates a rolled-back plan again before it runs again.
pub fn revive(id: i64) -> std::result::Result<(), Failure> {
    let plan = split::load(id)?;
    let keyspace = keyspace::lock(&plan.keyspace)?;
    check_shards(&keyspace, &plan.source, &plan.target)?;
    check_keys(&keyspace, &plan.source, &plan.entries)?;
    if keyspace.strategy.is_directory() {
        tenants::reserve_for_split(id, &plan.target, &keyspace.name, &plan.entries)?;
    }
    split_state::plan::hold_keys(id, true);
    split_state::plan::take_tables(id, &keyspace.name);
    Ok(())
}
