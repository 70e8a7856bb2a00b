//! The choice of the shard for a reservation.

use super::rendezvous::{self, Candidate};
use super::{error, free_slots, settle};
use crate::catalog::shard::POSTGRES;
use crate::error::Failure;
use crate::named_enum::named_enum;
use crate::server::sql::{self, Prepared, Row};
use pgrx::pg_sys;

named_enum! {
    pub enum PlacementStrategy {
        /// The shard that has the fewest free slots, but at least one.
        FillFirst = "fill_first",
        /// The shard with the most free slots.
        Spread = "spread",
        /// The shard that the hash of the key selects.
        Consistent = "consistent",
    }
}

impl PlacementStrategy {
    pub fn parse(text: &str) -> Result<PlacementStrategy, Failure> {
        PlacementStrategy::from_name(text).ok_or_else(|| error::unknown_strategy(text))
    }
}

const TYPES: &[pg_sys::Oid] = &[pg_sys::TEXTOID, pg_sys::INT8ARRAYOID];

thread_local! {
    static QUIET: Prepared =
        const { Prepared::new(include_str!("../../sql/placement/choose_quiet.sql"), TYPES) };
    static FILL_FIRST: Prepared =
        const { Prepared::new(include_str!("../../sql/placement/choose_fill_first.sql"), TYPES) };
    static SPREAD: Prepared =
        const { Prepared::new(include_str!("../../sql/placement/choose_spread.sql"), TYPES) };
    static BY_KEYS: Prepared = const {
        Prepared::new(
            include_str!("../../sql/placement/choose_by_keys.sql"),
            &[pg_sys::TEXTOID, pg_sys::INT8ARRAYOID, pg_sys::FLOAT8OID, pg_sys::BOOLOID],
        )
    };
    static ANY: Prepared =
        const { Prepared::new(include_str!("../../sql/placement/choose_any.sql"), TYPES) };
}

/// A shard, as far as changes to it are committed.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub shard_id: i64,
    pub free: i64,
    /// The number of changes of free slots that were added up to find it.
    pub entries: i64,
}

impl Choice {
    fn is_unlimited(&self) -> bool {
        self.free > free_slots::UNLIMITED / 2
    }
}

/// Returns the next shard to try, or None if no open shard has a free slot.
fn next(kind: &str, key: &str, strategy: PlacementStrategy, excluded: &[i64]) -> Option<Choice> {
    let args = [kind.into(), excluded.to_vec().into()];
    let by_free_slots = |query| sql::read_one_prepared(query, &args, choice);
    let by_keys = |choice: Choice| {
        if choice.is_unlimited() && kind == POSTGRES {
            by_keys(excluded, strategy).unwrap_or(choice)
        } else {
            choice
        }
    };
    match strategy {
        PlacementStrategy::FillFirst if free_slots::is_contended() => by_free_slots(&FILL_FIRST).map(by_keys),
        PlacementStrategy::FillFirst => {
            by_free_slots(&QUIET).or_else(|| by_free_slots(&FILL_FIRST)).map(by_keys)
        }
        PlacementStrategy::Spread => by_free_slots(&SPREAD).map(by_keys),
        PlacementStrategy::Consistent => {
            let open = sql::read_prepared(&ANY, &args, |row| Candidate {
                id: row.value(1),
                shard_key: row.value(2),
                capacity: row.get(3),
                free: row.value(4),
                entries: row.value(5),
            });
            let chosen = rendezvous::order(key, open).into_iter().find(|c| c.free > 0)?;
            Some(Choice { shard_id: chosen.id, free: chosen.free, entries: chosen.entries })
        }
    }
}

/// The greatest number of routing entries that are all read: if there are more, a sample tells as well which shard has
/// the fewest.
const READ: f64 = 100_000.0;

/// Chooses by the keys that are routed to the servers: tenants take no slots of servers without a capacity.
fn by_keys(excluded: &[i64], strategy: PlacementStrategy) -> Option<Choice> {
    let entries = sql::read_one(
        "SELECT reltuples::float8 FROM pg_catalog.pg_class
          WHERE oid OPERATOR(pg_catalog.=) 'shardmaster.routing_entry'::pg_catalog.regclass",
        &[],
        |row| row.value::<f64>(1),
    );
    let percent = (100.0 * READ / entries.unwrap_or(0.0).max(READ)).min(100.0);
    let args = [
        POSTGRES.into(),
        excluded.to_vec().into(),
        percent.into(),
        (strategy == PlacementStrategy::FillFirst).into(),
    ];
    sql::read_one_prepared(&BY_KEYS, &args, choice)
}

fn choice(row: Row<'_>) -> Choice {
    Choice { shard_id: row.value(1), free: row.value(2), entries: row.value(3) }
}

/// The greatest number of leases that have run out and are ended before a refusal.
const BEFORE_REFUSAL: i32 = 200;

/// Tries one shard after the other, in the order of the strategy, until one gives what is wanted. A shard whose last
/// slots others are taking at the moment is not waited for. Leases that have run out are ended before a refusal.
pub fn until_taken<T>(
    kind: &str,
    key: &str,
    strategy: PlacementStrategy,
    mut take: impl FnMut(&Choice) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let mut tried = Vec::new();
    loop {
        match next(kind, key, strategy, &tried) {
            Some(choice) => match take(&choice)? {
                Some(taken) => return Ok(taken),
                None => tried.push(choice.shard_id),
            },
            None if settle::expire(kind, BEFORE_REFUSAL) > 0 => tried.clear(),
            None => return Err(no_capacity(kind)),
        }
    }
}

/// Returns the reason why there is no shard: some names of the shards of the kind for each cause.
fn no_capacity(kind: &str) -> Failure {
    let names = |condition: &str| {
        let query = format!(
            "SELECT s.shard_key FROM shardmaster.shard s WHERE s.kind = $1 AND {condition} ORDER BY s.shard_key LIMIT 20"
        );
        sql::read_column::<String>(&query, &[kind.into()])
    };
    let full = names("s.status = 'active'");
    error::no_capacity(kind, &full, &names("s.status = 'draining'"), &names("s.status = 'disabled'"))
}
