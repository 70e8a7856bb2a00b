//! What this master routes to a shard of all that a split has taken away from it.

use crate::agent;
use crate::catalog::keyspace::{self, Keyspace, Strategy};
use crate::catalog::routing;
use crate::remote::Connection;
use crate::routing::interval::Interval;
use crate::routing::ordered::Ordered;
use crate::split::error::Result;
use crate::split::session::Side;
use crate::sql;

/// What the shard knows of what has left it: not which keyspace it was of.
pub enum Left {
    Keys(Vec<String>),
    Buckets(Vec<String>),
    /// Keys or numbers of buckets: the function that tells has gone.
    Either(Vec<String>),
    Ranges {
        of: Ordered,
        ranges: Vec<Interval>,
    },
}

/// An entry of routing that leads to the shard.
pub struct Route {
    pub what: &'static str,
    pub entry: String,
    pub keyspace: String,
    pub assigned_by: &'static str,
}

/// The scope of a source's side, as its tables have it.
pub fn read(connection: &mut Connection, split: i64) -> Result<Left> {
    let table = format!("shardmaster_agent.{}", agent::scope_table(split, Side::Source));
    let bound = connection.query(
        "SELECT format_type(atttypid, NULL) FROM pg_attribute
          WHERE attrelid = to_regclass($1) AND attname = 'lower' AND NOT attisdropped",
        &[Some(&table)],
    )?;
    if let Some(of) = bound.scalar().and_then(Ordered::from_name) {
        let rows = connection.run(&format!("SELECT lower::text, upper::text FROM {table}"))?;
        let ranges = rows.rows.into_iter().filter_map(|row| match <[_; 2]>::try_from(row) {
            Ok([lower, upper]) => Some(Interval { lower, upper }),
            Err(_) => None,
        });
        return Ok(Left::Ranges { of, ranges: ranges.collect() });
    }
    let hashes = connection.query(
        "SELECT bool_or(prosrc LIKE '%shardmaster\\_agent.shard\\_for(%') FROM pg_proc
          WHERE proname = $1 AND pronamespace = 'shardmaster_agent'::regnamespace",
        &[Some(&agent::in_scope_function(split, Side::Source))],
    )?;
    let rows = connection.run(&format!("SELECT key::text FROM {table}"))?;
    let keys = rows.rows.into_iter().flatten().flatten().collect();
    Ok(match hashes.scalar() {
        Some("t") => Left::Buckets(keys),
        Some(_) => Left::Keys(keys),
        None => Left::Either(keys),
    })
}

/// The first entry that leads clients of what has left to the shard, by whatever keyspace
/// it can be of.
pub fn to_shard(left: &Left, shard_key: &str) -> Option<Route> {
    let shards: Vec<String> = sql::read(
        "SELECT s.shard_key FROM shardmaster.shard s, shardmaster.shard o
          WHERE o.shard_key = $1 AND s.conninfo IS NOT DISTINCT FROM o.conninfo",
        &[shard_key.into()],
        |row| row.value(1),
    );
    keyspace::all().iter().find_map(|keyspace| match (left, keyspace.strategy) {
        (Left::Keys(keys) | Left::Either(keys), Strategy::Directory) => {
            named(keyspace, keys, &shards).map(|entry| route("key", entry, keyspace, "shard_assign"))
        }
        (Left::Buckets(keys) | Left::Either(keys), Strategy::Hash { .. }) => named(keyspace, keys, &shards)
            .map(|entry| route("bucket", entry, keyspace, "shard_assign_bucket")),
        (Left::Ranges { of, ranges }, Strategy::Range { of: here }) if *of == here => {
            overlapping(keyspace, *of, ranges, &shards)
                .map(|entry| route("range", entry, keyspace, "shard_assign_range"))
        }
        _ => None,
    })
}

fn route(what: &'static str, entry: String, keyspace: &Keyspace, assigned_by: &'static str) -> Route {
    Route { what, entry, keyspace: keyspace.name.clone(), assigned_by }
}

fn named(keyspace: &Keyspace, keys: &[String], shards: &[String]) -> Option<String> {
    sql::read_one(
        "SELECT e.key FROM shardmaster.routing_entry e
          WHERE e.keyspace = $1 AND e.key = ANY ($2) AND e.valid_to IS NULL AND NOT e.unassigned
            AND e.write_shard = ANY ($3)
          ORDER BY e.key LIMIT 1",
        &[keyspace.name.as_str().into(), keys.to_vec().into(), shards.to_vec().into()],
        |row| row.value(1),
    )
}

/// Ranges may have been cut and joined since: what counts is the keys in them.
fn overlapping(keyspace: &Keyspace, of: Ordered, ranges: &[Interval], shards: &[String]) -> Option<String> {
    ranges
        .iter()
        .flat_map(|range| routing::ranges(&keyspace.name, of, range))
        .find(|entry| shards.contains(&entry.shard))
        .map(|entry| entry.name)
}
