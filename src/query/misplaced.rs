//! Rows on a shard that no route leads to: all shards count their rows by key, and the routes are those of the version
//! that was valid when the shards took their snapshots.

use super::between::{self, Hidden};
use super::error;
use super::run::{Query, QueryEvent, RunningQuery, Statement};
use crate::catalog::caller::Caller;
use crate::catalog::database_location;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::table_policy::{self, TableName, TablePolicy};
use crate::catalog::{routing_history, shard};
use crate::error::{Failure, SqlState, warn};
use crate::remote::fan_out::ShardRow;
use crate::remote::quote::{ident, literal};
use std::collections::HashMap;
use std::time::Duration;

/// How often routing may change before all shards have their snapshots.
const TRIES: u32 = 10;
/// The greatest number of keys whose routes are looked up at once, and of their bytes.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;

pub struct MisplacedQuery<'a> {
    pub keyspace: &'a str,
    /// `None` for all active shards.
    pub shards: Option<&'a [String]>,
    /// How long each shard is waited for, in total.
    pub timeout: Duration,
}

/// The rows of one key in one table of a shard.
pub struct Count {
    pub shard: String,
    pub table: String,
    /// The key as the shard has it. `None` if it is NULL.
    pub key: Option<String>,
    pub rows: i64,
    /// The shard that its route leads to. `None` if it is not routed.
    pub routed_to: Option<String>,
}

/// Counts that come as the shards send them.
pub struct Counts {
    running: RunningQuery,
    keyspace: Keyspace,
    version: i64,
    /// For each shard, others that may be in the same database if they have not reported it: they share tables in a
    /// schema of their own.
    together: HashMap<String, Vec<String>>,
}

impl MisplacedQuery<'_> {
    pub fn begin(&self) -> Result<Counts, Failure> {
        let (keyspace, policies) = Caller::as_owner(|_| {
            let keyspace = keyspace::find(self.keyspace).map_err(Failure::from)?;
            Ok::<_, Failure>((keyspace, table_policy::require(self.keyspace)?))
        })?;
        let tables = policies.iter().map(|policy| TableName::of(&policy.table_name)).collect::<Vec<_>>();
        let statement = |namespace: &str, seen: &[&Hidden], missing: &[usize]| {
            statement(&policies, namespace, seen, missing)
        };
        for _ in 0..TRIES {
            let version = self.version();
            let running = self.query(Statement::Over(&tables, &statement)).begin()?;
            if self.version() == version {
                let has_schemas = policies.iter().any(|policy| is_in_a_schema(&policy.table_name));
                warn_of_missing(&running, &policies);
                let together = if has_schemas { Caller::as_owner(|_| together()) } else { HashMap::new() };
                return Ok(Counts { running, keyspace, version, together });
            }
        }
        Err(error::restless(TRIES))
    }

    fn version(&self) -> i64 {
        Caller::as_owner(|_| keyspace::latest_version(self.keyspace))
    }

    fn query<'a>(&'a self, statement: Statement<'a>) -> Query<'a> {
        Query {
            statement,
            select: "*",
            then: "",
            keyspace: self.keyspace,
            first_schema: None,
            shards: self.shards,
            timeout: self.timeout,
            reports: false,
            whole: true,
        }
    }
}

/// Returns the statement. No table of the same name elsewhere is read instead of a table. A table that a session sees
/// without hidden rows has its plain name.
fn statement(policies: &[TablePolicy], namespace: &str, seen: &[&Hidden], missing: &[usize]) -> String {
    let of_table = |policy: &TablePolicy| {
        let (table, column) = (&policy.table_name, ident(&policy.shard_by));
        let read = between::name_of(&TableName::of(table), namespace, seen);
        format!(
            "SELECT {}::pg_catalog.text AS table_name, r.{column}::pg_catalog.text COLLATE \"C\" AS key, pg_catalog.count(*) AS rows
               FROM {read} AS r GROUP BY 2",
            literal(table)
        )
    };
    let there = policies.iter().enumerate().filter(|(position, _)| !missing.contains(position));
    let all: Vec<String> = there.map(|(_, policy)| of_table(policy)).collect();
    if all.is_empty() {
        return "SELECT NULL::pg_catalog.text AS table_name, NULL::pg_catalog.text AS key, NULL::pg_catalog.int8 AS rows WHERE false".to_owned();
    }
    all.join("\nUNION ALL\n")
}

/// Warns of missing tables: a table that a shard lacks has no rows there, and does not keep the others from being
/// counted.
fn warn_of_missing(running: &RunningQuery, policies: &[TablePolicy]) {
    for (shard, missing) in running.missing() {
        let names: Vec<&str> = missing
            .iter()
            .filter_map(|position| policies.get(*position).map(|policy| policy.table_name.as_str()))
            .collect();
        if names.is_empty() {
            continue;
        }
        let text = format!("shard \"{shard}\" has no table {}", names.join(", "));
        warn(
            text,
            "Create the table there, for example with shard_schema_copy(), or remove it from the keyspace with shard_table_drop().",
        );
    }
}

/// Adapts the error of a shard that does not have all of a keyspace's tables, or not like the others: its server knows
/// nothing of keyspaces.
fn lacking(failure: Failure) -> Failure {
    let lacks = [SqlState::parse("42P01"), SqlState::parse("42703"), SqlState::parse("3F000")];
    match failure.hint {
        None if lacks.contains(&failure.sqlstate) => {
            failure.hint("All tables that shard_tables() lists are read there. Create it, for example with shard_schema_copy(), or remove it with shard_table_drop(). Or name other shards.")
        }
        _ => failure,
    }
}

/// Whether the table is in a schema of its own, and not in each shard's namespace.
fn is_in_a_schema(table: &str) -> bool {
    TableName::of(table).schema.is_some()
}

fn together() -> HashMap<String, Vec<String>> {
    let servers = shard::all().into_iter().filter(shard::Shard::holds_rows);
    servers
        .map(|shard| {
            let others = database_location::in_database(&shard)
                .into_iter()
                .map(|(other, _)| other.shard_key)
                .collect();
            (shard.shard_key, others)
        })
        .collect()
}

impl Counts {
    /// Returns the next counts that are not on the shard of their key's route, or None once all shards have answered.
    pub fn next(&mut self) -> Result<Option<Vec<Count>>, Failure> {
        let (mut counts, mut bytes) = (Vec::new(), 0);
        while counts.len() < BATCH && bytes < BATCH_BYTES {
            match self.running.next() {
                Some(QueryEvent::Row(number, row)) => {
                    let count = self.count(number, &row);
                    bytes += count.key.as_ref().map_or(0, String::len);
                    counts.push(count);
                }
                Some(QueryEvent::Failed(_, failure)) => return Err(lacking(failure)),
                None if counts.is_empty() => return Ok(None),
                None => break,
            }
        }
        self.route(&mut counts);
        counts.retain(|count| !self.is_in_place(count));
        Ok(Some(counts))
    }

    fn count(&self, number: usize, row: &ShardRow) -> Count {
        let text = |column| row.value(column).map(|value| value.to_string_lossy().into_owned());
        Count {
            shard: self.running.shard(number).to_owned(),
            table: text(0).unwrap_or_default(),
            key: text(1),
            rows: text(2).and_then(|rows| rows.parse().ok()).unwrap_or(0),
            routed_to: None,
        }
    }

    /// Looks up the routes. A value that is no key of the keyspace's type has none.
    fn route(&self, counts: &mut [Count]) {
        let key_type = self.keyspace.key_type();
        let key_of = |count: &Count| Some(key_type.of_value(count.key.as_deref()?)?.into_owned());
        let (places, keys): (Vec<usize>, Vec<String>) =
            counts.iter().enumerate().filter_map(|(place, count)| Some((place, key_of(count)?))).unzip();
        let shards = Caller::as_owner(|_| routing_history::shards_at(&self.keyspace, &keys, self.version));
        for (place, shard) in places.into_iter().zip(shards) {
            if let Some(count) = counts.get_mut(place) {
                count.routed_to = shard;
            }
        }
    }

    fn is_in_place(&self, count: &Count) -> bool {
        let Some(routed_to) = &count.routed_to else { return false };
        let is_shared = || {
            let (here, there) = (self.running.database(&count.shard), self.running.database(routed_to));
            is_in_a_schema(&count.table)
                && match (here, there) {
                    (Some(here), Some(there)) => here == there,
                    // A shard that was not asked may be anywhere.
                    _ => self.together.get(&count.shard).is_some_and(|others| others.contains(routed_to)),
                }
        };
        *routed_to == count.shard || is_shared()
    }
}
