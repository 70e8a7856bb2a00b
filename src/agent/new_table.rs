//! What shards report about a table that is added to a keyspace: whether its name is that of a view, or of nothing.

use super::error::Result;
use super::session;
use crate::catalog::local;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::TableName;
use std::time::{Duration, Instant};

/// The limits for one shard and for all of them: an operator waits at a terminal, and the check of a split finds what
/// they do not report.
const EACH: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(5);

/// The report of the shards that could be asked.
#[derive(Debug, PartialEq, Eq)]
pub enum SaidByShards {
    /// One of them has the table, with the column.
    Fits,
    /// A shard has another kind of object under that name, in words.
    Other { shard: String, kind: String },
    /// A shard has the table without the column.
    NoColumn { shard: String },
    /// None of these shards has the table.
    Missing { asked: Vec<String> },
    /// No shard has answered.
    Nothing,
}

/// Asks the shards of this database first, then others by libpq, until one has the table.
pub fn look(table: &TableName, column: Option<&str>, mut shards: Vec<Shard>) -> SaidByShards {
    shards.retain(|shard| shard.holds_rows() && shard.is_active());
    shards.sort_by_key(|shard| (shard.conninfo.is_some(), shard.shard_index));
    let deadline = Instant::now() + ALL;
    let mut asked = Vec::new();
    for shard in shards {
        let left = deadline.saturating_duration_since(Instant::now());
        if shard.conninfo.is_some() && left.is_zero() {
            break;
        }
        let Ok(found) = relation(&shard, table, column, left.min(EACH)) else { continue };
        match found {
            None => asked.push(shard.shard_key),
            Some((kind, has_column)) if kind.is_empty() => {
                let shard = shard.shard_key;
                return if has_column { SaidByShards::Fits } else { SaidByShards::NoColumn { shard } };
            }
            Some((kind, _)) => return SaidByShards::Other { shard: shard.shard_key, kind },
        }
    }
    if asked.is_empty() { SaidByShards::Nothing } else { SaidByShards::Missing { asked } }
}

/// Returns the kind of a relation in words, and whether it has the column.
fn relation(
    shard: &Shard,
    table: &TableName,
    column: Option<&str>,
    within: Duration,
) -> Result<Option<(String, bool)>> {
    let schema = table.schema.as_deref().unwrap_or(&shard.namespace);
    let found = match &shard.conninfo {
        None => local::relation(schema, &table.name, column),
        Some(_) => {
            let mut session = session::open_within(shard, "table look-up", within)?;
            session.set_deadline(Some(Instant::now() + within));
            let rows = session.query(local::RELATION, &[Some(schema), Some(&table.name), column])?;
            rows.rows.into_iter().next().map(|row| {
                let mut cells = row.into_iter().map(Option::unwrap_or_default);
                (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
            })
        }
    };
    Ok(found.map(|(kind, has_column)| (kind, has_column == "true")))
}
