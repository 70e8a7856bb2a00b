//! The holders of locks that a step waits for: a server's error for a lock that was not granted in time names neither
//! the table nor the holder.

use crate::agent::blocking_session::{OPEN_FOR, SESSION};
use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::table_names::TableNames;
use crate::catalog::shard::Shard;
use crate::catalog::split::Plan;
use crate::remote::RemoteError;
use std::time::Duration;

/// The limit for a query whose result only serves `waiting_for`.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds the tables and their holders to the error, if the shard still shows them.
pub fn named(plan: &Plan, mut error: RemoteError) -> SplitError {
    let sides = [(Side::Source, &plan.source), (Side::Target, &plan.target)];
    let side = sides.into_iter().find(|(_, shard)| shard.shard_key == error.shard);
    match side.map(|(side, shard)| look(plan, side, shard)) {
        Some(Ok(Holders { whole: Some(holders), .. })) => {
            SplitError::Retry(format!("a lock on shard \"{}\": {holders}", error.shard))
        }
        Some(Ok(Holders { perhaps: Some(holders), .. })) => {
            error.message = format!("{}, perhaps for {holders}", error.message);
            SplitError::Remote(error)
        }
        _ => SplitError::Remote(error),
    }
}

struct Holders {
    /// Holders of exclusive locks on moving tables.
    whole: Option<String>,
    /// Other possible holders: locks on rows of moving tables, or on other tables that foreign keys or triggers lead
    /// to, held for longer than a step waits.
    perhaps: Option<String>,
}

/// Reads them without resolving a name that would wait for the table itself.
fn look(plan: &Plan, side: Side, shard: &Shard) -> Result<Holders> {
    let mut session = session::open_within(shard, &format!("split {} locks", plan.id), LIMIT)?;
    let query = format!(
        "WITH RECURSIVE moving AS (
             SELECT c.oid FROM ROWS FROM (unnest($1::name[]), unnest($2::name[])) AS t (nspname, relname)
               JOIN pg_namespace n USING (nspname) JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relname
             UNION
             SELECT i.inhrelid FROM moving m JOIN pg_inherits i ON i.inhparent = m.oid),
         held AS (
             SELECT DISTINCT format('%I.%I by %s', n.nspname, c.relname, {SESSION} || {OPEN_FOR}) AS holder,
                    m.oid IS NOT NULL AS is_moving, l.mode NOT IN ('RowShareLock', 'RowExclusiveLock') AS is_whole,
                    l.pid IS NULL OR a.xact_start < clock_timestamp() - interval '2 s' AS is_old
               FROM pg_locks l JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
               JOIN pg_namespace n ON n.oid = c.relnamespace
               LEFT JOIN moving m ON m.oid = c.oid LEFT JOIN pg_stat_activity a ON a.pid = l.pid
              WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND l.mode IN ('RowShareLock', 'RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                               'AccessExclusiveLock')),
         ordered AS (
             SELECT *, CASE WHEN is_whole THEN holder ELSE 'rows of ' || holder END AS text FROM held ORDER BY is_moving AND is_whole DESC, holder LIMIT 20)
         SELECT string_agg(text, '; ') FILTER (WHERE is_moving AND is_whole),
                string_agg(text, '; ') FILTER (WHERE is_moving <> is_whole AND is_old)
           FROM ordered"
    );
    let found = session.query(&query, &catalogs::given(&TableNames::of(plan, side).lists()))?;
    let mut row = found.rows.into_iter().next().unwrap_or_default().into_iter();
    Ok(Holders { whole: row.next().flatten(), perhaps: row.next().flatten() })
}
