//! The shards of an interval of keys.

use super::found::{Intent, Route};
use super::lookup::Backoff;
use super::{RoutingError, ranges};
use crate::catalog::keyspace;
use crate::catalog::routing::TOUCHED;
use crate::catalog::shard::{self, ShardStatus};
use crate::error::Failure;
use crate::guc;
use crate::keys::interval::{Bound, Interval, Span};
use crate::server::sql;

/// A part of the interval, and where it is to be found.
pub struct Part {
    pub lower: Bound,
    pub upper: Bound,
    pub route: Route,
}

struct Look {
    interval: Interval,
    disabled: bool,
    shard_status: ShardStatus,
    shard_key: String,
    namespace: String,
    conninfo: Option<String>,
    client_conninfo: Option<String>,
}

/// The parts in their order, cut at the interval's bounds. A write waits while a split
/// holds one of them back.
pub fn route(
    bounds: (Option<&str>, Option<&str>),
    intent: Intent,
    keyspace: &str,
) -> Result<Vec<Part>, Failure> {
    let keyspace = keyspace::find(keyspace)?;
    let of = ranges::order(&keyspace)?;
    let wanted = Interval::new(keyspace.key_type(), bounds.0, bounds.1)?;
    let mut patience = Backoff::new(guc::route_wait_timeout());
    loop {
        let version = keyspace::version(&keyspace.name);
        let parts = look(&wanted.span(&keyspace.name, of), intent);
        let held = parts.iter().find(|part| part.disabled && intent == Intent::Write);
        if let Some(held) = held {
            let key = held.interval.name(of);
            if sql::keeps_its_snapshot() {
                return Err(RoutingError::Serialization(key).into());
            }
            if patience.pause() {
                continue;
            }
            return Err(RoutingError::BetweenShards { key, keyspace: keyspace.name, version }.into());
        }
        let intervals: Vec<Interval> = parts.iter().map(|part| part.interval.clone()).collect();
        if !ranges::covers(&intervals, &wanted, of) {
            return Err(RoutingError::UnknownRange { range: wanted.name(of), keyspace: keyspace.name }.into());
        }
        return parts
            .into_iter()
            .filter_map(|part| part.interval.intersection(&wanted, of).map(|clipped| (clipped, part)))
            .map(|(clipped, part)| part.route(clipped, version))
            .collect();
    }
}

impl Look {
    fn route(self, clipped: Interval, version: i64) -> Result<Part, Failure> {
        if self.shard_status == ShardStatus::Disabled {
            return Err(RoutingError::ShardDisabled(self.shard_key).into());
        }
        let conninfo =
            shard::conninfo_for_clients(self.conninfo.as_deref(), self.client_conninfo.as_deref())?;
        let route = Route { shard_key: self.shard_key, namespace: self.namespace, version, conninfo };
        Ok(Part { lower: clipped.lower, upper: clipped.upper, route })
    }
}

fn look(span: &Span, intent: Intent) -> Vec<Look> {
    let shard = match intent {
        Intent::Read => "read_shard",
        Intent::Write => "write_shard",
    };
    let query = format!(
        "SELECT e.lower, e.upper, e.status = 'disabled', s.status, s.shard_key, s.namespace, s.conninfo, s.client_conninfo
           FROM shardmaster.routing_entry e JOIN shardmaster.shard s ON s.shard_key = e.{shard}
          WHERE {TOUCHED} ORDER BY lower(e.span)"
    );
    let args = [span.lower.clone().into(), span.upper.clone().into()];
    sql::read(&query, &args, |row| Look {
        interval: Interval { lower: row.get(1), upper: row.get(2) },
        disabled: row.value(3),
        shard_status: ShardStatus::from_catalog(&row.value::<String>(4)),
        shard_key: row.value(5),
        namespace: row.value(6),
        conninfo: row.get(7),
        client_conninfo: row.get(8),
    })
}
