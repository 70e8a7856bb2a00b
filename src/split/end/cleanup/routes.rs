//! The routes of this master to a shard for what a split has moved away from it.

use crate::agent::error::Result;
use crate::agent::one_database::shares_locks;
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::routing;
use crate::catalog::shard::Shard;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::{Scope, ScopeEntries};
use crate::remote::Connection;
use crate::server::sql;
use std::time::{Duration, Instant};

/// A routing entry that leads to the shard.
pub struct ShardRoute {
    pub what: &'static str,
    pub entry: String,
    pub keyspace: String,
    pub assigned_by: &'static str,
}

/// The shards that are in the database of a session: by their addresses, or perhaps.
pub struct ShardNames {
    known: Vec<Shard>,
    unknown: Vec<Shard>,
    /// The time until which they are asked.
    until: Option<Instant>,
}

/// The limit for all that are asked: many may not answer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl ShardNames {
    pub fn of(shard: &Shard) -> ShardNames {
        let (known, unknown): (Vec<_>, Vec<_>) = database_location::in_database(shard)
            .into_iter()
            .partition(|(_, sameness)| *sameness == Sameness::Same);
        ShardNames {
            known: known.into_iter().map(|(shard, _)| shard).collect(),
            unknown: unknown.into_iter().map(|(shard, _)| shard).collect(),
            until: None,
        }
    }

    /// Returns the first entry that leads clients of what has left to tables in these schemas of the database. A shard
    /// of another address is asked if something leads to it; one that does not answer, or for which no time is left,
    /// may be there.
    pub fn route(
        &mut self,
        connection: &mut Connection,
        left: &Scope,
        schemas: &[String],
    ) -> Option<ShardRoute> {
        loop {
            let known: Vec<&Shard> = self.known.iter().filter(|shard| self.may_use(shard, schemas)).collect();
            if let Some(route) = to_shards(left, &known) {
                return Some(route);
            }
            let leads = |shard: &Shard| self.may_use(shard, schemas) && to_shards(left, &[shard]).is_some();
            let at = self.unknown.iter().position(leads)?;
            let asked = self.unknown.remove(at);
            let until = *self.until.get_or_insert_with(|| Instant::now() + LONGEST_WAIT);
            if Instant::now() >= until || shares_locks(connection, &asked).unwrap_or(true) {
                self.known.push(asked);
            }
        }
    }

    /// Whether clients of a shard may use tables in these schemas. Clients of a shard that is a schema of the database
    /// do not use tables of another such shard's schema.
    fn may_use(&self, shard: &Shard, schemas: &[String]) -> bool {
        let is_a_shards =
            |schema: &String| self.known.iter().chain(&self.unknown).any(|other| other.namespace == *schema);
        schemas.is_empty() || schemas.contains(&shard.namespace) || !schemas.iter().all(is_a_shards)
    }
}

/// Returns the schemas of the tables that have triggers of these names.
pub fn schemas(connection: &mut Connection, trigger_prefix: &str) -> Result<Vec<String>> {
    let found = connection.query(
        "SELECT DISTINCT n.nspname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
           JOIN pg_namespace n ON n.oid = c.relnamespace WHERE starts_with(t.tgname, $1)",
        &[Some(trigger_prefix)],
    )?;
    Ok(found.rows.into_iter().flatten().flatten().collect())
}

/// Searches every keyspace that it can belong to.
fn to_shards(left: &Scope, shards: &[&Shard]) -> Option<ShardRoute> {
    if shards.is_empty() {
        return None;
    }
    let shards: Vec<String> = shards.iter().map(|shard| shard.shard_key.clone()).collect();
    keyspace::all().iter().filter(|keyspace| left.is_of(keyspace.strategy)).find_map(|keyspace| {
        let entry = match left.entries() {
            ScopeEntries::Named(names) => named(keyspace, names, &shards)?,
            ScopeEntries::Ranges(of, ranges) => overlapping(keyspace, of, ranges, &shards)?,
        };
        let (what, assigned_by) = keyspace.strategy.entry_is();
        Some(ShardRoute { what, entry, keyspace: keyspace.name.clone(), assigned_by })
    })
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

/// Returns an entry with keys in the ranges. The entries may have been cut and joined since, so the keys are compared.
fn overlapping(keyspace: &Keyspace, of: Ordered, ranges: &[Interval], shards: &[String]) -> Option<String> {
    ranges
        .iter()
        .flat_map(|range| routing::ranges(&keyspace.name, of, range))
        .find(|entry| shards.contains(&entry.shard))
        .map(|entry| entry.name)
}
