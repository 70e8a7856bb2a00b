//! Windows: the changes that are visible in this step's snapshot S and were not in
//! the one before, P. Sequence numbers are not commit order, snapshots are.

use super::collision;
use super::sieve::{Sieve, explain};
use crate::agent::error::Result;
use crate::agent::scope;
use crate::agent::state::progress::{Cursor, Progress, TableProgress};
use crate::agent::state::{consumed, queue};
use crate::keys::scope::Scope;
use crate::remote::copy::{self, Bounds, Copied};
use crate::remote::quote::literal;
use crate::remote::{RemoteError, number};
use crate::split::engine::Engine;
use crate::split::table::Table;

/// Messages whose answers `apply` waits for, whatever the number of rows: both COPYs begin
/// and end; the rows are deleted with what begins the second one.
pub const ROUND_TRIPS: u32 = 4;

/// What one table's queue holds of a window.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub rows: i64,
    /// When the newest of them was made, by the source's clock, in microseconds since 1970.
    pub newest: Option<i64>,
    pub truncated: bool,
}

/// The condition on a queue's rows, read in S.
fn condition(progress: &Progress) -> String {
    queue::is_new(progress.snapshot.as_deref())
}

/// Counts the window of every table, in S.
pub fn count(engine: &mut Engine, progress: &Progress) -> Result<Vec<Entries>> {
    let condition = condition(progress);
    let queries: Vec<String> = engine
        .tables
        .iter()
        .map(|table| queue::window(&table.queue, table.policy.ordinal, &condition))
        .collect();
    let rows = engine.reader.run(&format!("{} ORDER BY 1", queries.join(" UNION ALL ")))?;
    let shard = engine.reader.shard();
    let entries = |row: &Vec<Option<String>>| match row.as_slice() {
        [_, rows, newest, truncated] => Ok(Entries {
            rows: number::count(shard, "the number of changes in a queue", rows.as_deref())?,
            newest: newest
                .as_deref()
                .map(|at| number::count(shard, "the time of a change in microseconds", Some(at)))
                .transpose()?,
            truncated: truncated.as_deref() == Some("1"),
        }),
        _ => Ok(Entries::default()),
    };
    let counted =
        rows.rows.iter().map(entries).collect::<std::result::Result<Vec<Entries>, RemoteError>>()?;
    if counted.len() != engine.tables.len() {
        return Err(RemoteError::no_number(shard, "the number of queues", &counted.len().to_string()).into());
    }
    Ok(counted)
}

/// Where in S a row must be to be on the target already; None: nowhere.
fn copied_rows(progress: &TableProgress) -> Option<String> {
    if progress.is_copied() && !progress.leaves.is_empty() {
        return Some("true".to_owned());
    }
    let parts: Vec<String> = progress
        .leaves
        .iter()
        .filter_map(|leaf| match leaf.cursor {
            Cursor::End => Some(format!("t.tableoid = {}", leaf.oid)),
            Cursor::Block(0) => None,
            Cursor::Block(next) => {
                Some(format!("(t.tableoid = {} AND t.ctid < '({next},0)'::tid)", leaf.oid))
            }
        })
        .collect();
    (!parts.is_empty()).then(|| format!("({})", parts.join(" OR ")))
}

/// Brings the rows of one table that changed in the window, and that are below the
/// cursors, to their state in S. Returns how many keys changed.
pub fn apply(engine: &mut Engine, position: usize, progress: &Progress) -> Result<i64> {
    let Some(below) = copied_rows(&progress.tables[position]) else { return Ok(0) };
    let table = &engine.tables[position];
    let condition = condition(progress);
    let changed = copy::pipe(
        &mut engine.reader,
        &format!("COPY ({}) TO STDOUT ({})", table.window(&condition), table.text_format()),
        &mut engine.target,
        &format!("COPY {} FROM STDIN ({})", table.window_table(), table.text_format()),
        Bounds::unlimited(),
    )?;
    let delete = delete_changed(&engine.plan.scope, table);
    let scope = engine.plan.scope.filter(&table.source_by, "t");
    let out = format!(
        "COPY (SELECT {} FROM {} AND {scope} AND {below}) TO STDOUT ({})",
        table.select_list(),
        table.changed_rows(&condition),
        table.format()
    );
    let bounds = Bounds { bytes: engine.window_limit, ..Bounds::unlimited() };
    copy_rows(engine, position, &out, &delete, bounds)?;
    Ok(i64::try_from(changed.rows).unwrap_or(i64::MAX))
}

/// By key and scope: by key alone it would remove another tenant's row. The planner knows nothing
/// of the window's size before.
fn delete_changed(scope: &Scope, table: &Table) -> String {
    format!(
        "ANALYZE {window}; DELETE FROM {} t USING {window} k WHERE {} AND {}; ",
        table.target_only(),
        table.target_join(),
        scope.filter(&table.target_by, "t"),
        window = table.window_table(),
    )
}

/// Copies rows of the source into the target: those of the scope, whatever the source gives.
/// Another one is an error, found on the way where the bytes tell, else by the target. What the
/// target does before goes in one message with it.
pub fn copy_rows(
    engine: &mut Engine,
    position: usize,
    out: &str,
    before: &str,
    bounds: Bounds,
) -> Result<Copied> {
    let Engine { plan, reader, target, tables, .. } = engine;
    let table = &tables[position];
    let copied = match &table.mesh {
        Some(mesh) => {
            let mut sieve = Sieve::new(mesh.clone());
            let mut look =
                |bytes: &[u8]| sieve.pass(bytes).map_err(|stray| explain(stray, plan, &table.target.name));
            let into = format!("{before}{}", copy_into(table));
            copy::pipe_through(reader, out, target, &into, bounds, &mut look)
        }
        None => {
            let into = format!("{before}{}", copy_scope_into(&plan.scope, table));
            copy::pipe(reader, out, target, &into, bounds)
        }
    };
    let name = engine.tables[position].source.name.clone();
    copied.map_err(|error| collision::explain(error.of_table(&name), engine, position))
}

fn copy_into(table: &Table) -> String {
    format!("COPY {} ({}) FROM STDIN ({})", table.target.name, table.target_columns(), table.format())
}

/// The same where the target computes the scope.
fn copy_scope_into(scope: &Scope, table: &Table) -> String {
    format!(
        "{} WHERE {} OR pg_temp.shardmaster_stray({}, {}::text)",
        copy_into(table),
        scope.arriving(&table.target_by),
        literal(&table.target.name),
        scope::arriving(&table.target_by),
    )
}

/// Deletes the scope's rows of one table on the target, in the step's transaction. From then on
/// the split that it takes back cannot bring them over once more.
pub fn delete_scope(engine: &mut Engine, position: usize) -> Result<()> {
    if let Some(there) = engine.plan.reverse_of {
        engine.target.run(&consumed::purge(there))?;
    }
    let table = &engine.tables[position];
    engine.target.run(&format!(
        "DELETE FROM {} t WHERE {}",
        table.target_only(),
        engine.plan.scope.predicate(&table.target_by, "t")
    ))?;
    Ok(())
}

/// The statements that consume what S has seen.
pub fn consume(engine: &Engine, snapshot: &str, step: i64, queues: &[usize]) -> String {
    let mut statements: Vec<String> = queues
        .iter()
        .filter_map(|position| engine.tables.get(*position))
        .map(|table| queue::consume(&table.queue, snapshot))
        .collect();
    statements.push(consumed::give_away(engine.plan.id, step, snapshot));
    statements.join("; ")
}
