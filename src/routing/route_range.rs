//! The shards of an interval of keys.

use super::found::{FoundEntry, FoundRoute, Intent, client_conninfo};
use super::{after_start, error, ranges};
use crate::catalog::routing::TOUCHED;
use crate::catalog::shard::ShardStatus;
use crate::catalog::{keyspace, outdated};
use crate::error::Failure;
use crate::keys::interval::{Bound, Interval, KeySpan};
use crate::routing::held_write::HeldWrite;
use crate::server::sql;

/// A part of the interval, and its place.
pub struct RangePart {
    pub lower: Bound,
    pub upper: Bound,
    pub route: FoundRoute,
}

/// An entry that touches the interval.
struct RangeLook {
    interval: Interval,
    found: FoundEntry,
}

/// Returns the parts in their order, cut at the interval's bounds. A write waits while a split holds one of them back.
pub fn route(
    lower: Option<&str>,
    upper: Option<&str>,
    intent: Intent,
    keyspace: &str,
) -> Result<Vec<RangePart>, Failure> {
    let keyspace = keyspace::find(keyspace)?;
    let of = ranges::order(&keyspace)?;
    let wanted = Interval::new(keyspace.key_type(), lower, upper)?;
    let mut held = HeldWrite::new();
    if intent == Intent::Write {
        after_start::wait(&wanted.name(of))?;
        outdated::require_current(&keyspace.name)?;
    }
    loop {
        let version = keyspace::version(&keyspace.name);
        let parts = look(&wanted.span(&keyspace.name, of), intent, version);
        if let Some(part) = parts.iter().find(|part| part.found.is_held(intent)) {
            held.wait(&part.interval.name(of), &keyspace.name, version)?;
            continue;
        }
        let intervals: Vec<Interval> = parts.iter().map(|part| part.interval.clone()).collect();
        if !ranges::covers(&intervals, &wanted, of) {
            return Err(error::unknown_range(&keyspace.name, &wanted.name(of)));
        }
        return parts
            .into_iter()
            .filter_map(|part| part.interval.intersection(&wanted, of).map(|clipped| (clipped, part)))
            .map(|(clipped, part)| {
                part.found.require_enabled()?;
                Ok(RangePart { lower: clipped.lower, upper: clipped.upper, route: part.found.route()? })
            })
            .collect();
    }
}

fn look(span: &KeySpan, intent: Intent, version: i64) -> Vec<RangeLook> {
    let (shard, client) = match intent {
        Intent::Read => ("coalesce(e.reads_from, e.read_shard)", client_conninfo!(read)),
        Intent::Write => ("e.write_shard", client_conninfo!(write)),
    };
    let query = format!(
        "SELECT e.lower, e.upper, e.status = 'disabled', s.status, s.shard_key, s.namespace, s.conninfo, {client}
           FROM shardmaster.routing_entry e JOIN shardmaster.shard s ON s.shard_key = {shard}
          WHERE {TOUCHED} ORDER BY lower(e.span)"
    );
    let args = [span.lower.clone().into(), span.upper.clone().into()];
    sql::read(&query, &args, |row| RangeLook {
        interval: Interval { lower: row.get(1), upper: row.get(2) },
        found: FoundEntry {
            version,
            disabled: row.value(3),
            shard_status: ShardStatus::from_catalog(&row.value::<String>(4)),
            shard_key: row.value(5),
            namespace: row.value(6),
            conninfo: row.get(7),
            client_conninfo: row.get(8),
        },
    })
}
