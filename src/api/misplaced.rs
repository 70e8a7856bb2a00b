//! Rows that are not where their key's route leads.

use super::arguments::{longest_wait, names_of};
use crate::error::{Failure, raise, required};
use crate::query::misplaced::{Count, Counts, MisplacedQuery};
use crate::query::run::require_fit;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: shards are asked as the caller's login.
#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_misplaced(
    keyspace: default!(Option<String>, "'default'"),
    shards: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'10 min'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(shard, String),
            name!(table_name, String),
            name!(key, Option<String>),
            name!(rows, i64),
            name!(routed_to, String),
        ),
    >,
    ErrorReport,
> {
    require_fit("shard_misplaced")?;
    let found = begin(keyspace, shards, timeout)?;
    Ok(TableIterator::new(found.filter_map(|count| {
        let routed_to = count.routed_to?;
        Some((count.shard, count.table, count.key, count.rows, routed_to))
    })))
}

/// Counts the rows whose keys have no route.
#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_unassigned(
    keyspace: default!(Option<String>, "'default'"),
    shards: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'10 min'"),
) -> Result<
    TableIterator<
        'static,
        (name!(shard, String), name!(table_name, String), name!(key, Option<String>), name!(rows, i64)),
    >,
    ErrorReport,
> {
    require_fit("shard_unassigned")?;
    let found = begin(keyspace, shards, timeout)?.filter(|count| count.routed_to.is_none());
    Ok(TableIterator::new(found.map(|count| (count.shard, count.table, count.key, count.rows))))
}

fn begin(
    keyspace: Option<String>,
    shards: Option<Vec<Option<String>>>,
    timeout: Option<Interval>,
) -> Result<MisplacedFound, Failure> {
    let keyspace = required(keyspace, "keyspace")?;
    let shards = shards.map(|names| names_of(names, "shards")).transpose()?;
    let asked =
        MisplacedQuery { keyspace: &keyspace, shards: shards.as_deref(), timeout: longest_wait(timeout)? };
    Ok(MisplacedFound { counts: Some(asked.begin()?), batch: Vec::new().into_iter() })
}

struct MisplacedFound {
    /// `None` if all shards have answered and no connection is open any more.
    counts: Option<Counts>,
    batch: std::vec::IntoIter<Count>,
}

impl Iterator for MisplacedFound {
    type Item = Count;

    fn next(&mut self) -> Option<Count> {
        loop {
            if let Some(count) = self.batch.next() {
                return Some(count);
            }
            match self.counts.as_mut()?.next() {
                Ok(Some(batch)) => self.batch = batch.into_iter(),
                Ok(None) => self.counts = None,
                Err(failure) => {
                    self.counts = None;
                    raise(failure)
                }
            }
        }
    }
}

extension_sql_file!(
    "../../sql/comments/misplaced.sql",
    name = "comments_misplaced",
    requires = [shard_misplaced, shard_unassigned]
);
