//! Windows: the changes that are visible in this step's snapshot S and were not in the one before, P. Sequence numbers
//! do not follow the order of commits, so snapshots are compared.

use super::collision;
use crate::agent::error::{Result, SplitError};
use crate::agent::scope;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::{CopyProgress, Cursor, TableProgress};
use crate::agent::state::{consumed, queue};
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::keys::scope::Scope;
use crate::remote::copy::{Bounds, Copied, CopyLook, CopyPiece};
use crate::remote::pipe;
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError, number};
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::copy::scope_filter::{ScopeFilter, explain};
use crate::split::copy::small_batch::{self, Queries};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Counted, Engine, QueueState};
use crate::split::table::SplitTable;

/// The greatest number of rows of windows that are copied in one message. A table with more is copied alone: one COPY
/// on the target takes its time, and a source that had sent everything would wait for it without a sign of life.
const FEW: i64 = 10_000;

/// Tables whose windows are copied together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowBatch {
    /// The tables, by position.
    pub tables: Vec<usize>,
    rows: i64,
}

impl WindowBatch {
    /// Returns those that have changed, in their order.
    pub fn of(entries: &[WindowEntries], but_for: &[usize]) -> Vec<WindowBatch> {
        let mut all: Vec<WindowBatch> = Vec::new();
        let changed = entries.iter().enumerate().filter(|(_, entries)| entries.rows > 0);
        for (position, WindowEntries { rows, .. }) in
            changed.filter(|(position, _)| !but_for.contains(position))
        {
            match all.last_mut().filter(|batch| batch.rows.saturating_add(*rows) <= FEW) {
                Some(batch) => {
                    batch.tables.push(position);
                    batch.rows += rows;
                }
                None => all.push(WindowBatch { tables: vec![position], rows: *rows }),
            }
        }
        all
    }

    fn is_small(&self) -> bool {
        self.rows <= FEW
    }

    /// Returns the number of answers that copies of this many of its tables wait for. In one message the first COPY
    /// begins, and each of a table's two ends, with which the next one has begun; the rows are deleted with what
    /// begins the second one.
    fn round_trips(&self, tables: usize) -> u32 {
        let copies = 2 * tables;
        // For many rows, statistics of the queue are updated first.
        u32::try_from(if self.is_small() { copies + 1 } else { 2 * copies + tables }).unwrap_or(u32::MAX)
    }
}

/// The entries of one table's queue that belong to a window.
#[derive(Clone, Debug, Default)]
pub struct WindowEntries {
    pub rows: i64,
    /// When the newest of them was made, by the source's clock, in microseconds since 1970.
    pub newest: Option<i64>,
    pub truncated: bool,
}

/// Returns the condition on a queue's rows, which are read in S.
fn condition(progress: &CopyProgress) -> String {
    queue::is_new(progress.snapshot.as_deref())
}

/// Returns statements that count the window of every table since a snapshot; one of them gives rows. All steps share
/// one plan: planning takes longer than running, and parallel processes for queues that are mostly empty would take
/// longer still.
pub fn counting(reader: &mut Connection, tables: &[SplitTable], since: &str) -> Result<String> {
    let query = counting_query(tables, &queue::is_new_since("$1"));
    reader.prepare(WINDOWS, &query)?;
    Ok(alone(&format!("EXECUTE {WINDOWS}({})", literal(since))))
}

const WINDOWS: &str = "windows";

/// Returns a statement that runs without parallel processes.
pub fn alone(statement: &str) -> String {
    format!("SET max_parallel_workers_per_gather = 0; {statement}; RESET max_parallel_workers_per_gather")
}

fn counting_query(tables: &[SplitTable], condition: &str) -> String {
    let queries: Vec<String> =
        tables.iter().map(|table| queue::window(&table.queue, table.policy.ordinal, condition)).collect();
    format!("{} ORDER BY 1", queries.join(" UNION ALL "))
}

/// Counts the window of every table, in S, unless that was done already for the target's snapshot.
pub fn count(
    reader: &mut Connection,
    tables: &[SplitTable],
    queues: &mut QueueState,
    progress: &CopyProgress,
) -> Result<Vec<WindowEntries>> {
    let since = progress.snapshot.as_deref();
    let counted = queues.counted.take().filter(|counted| Some(counted.since.as_str()) == since);
    let rows = match counted.and_then(|counted| counted.rows) {
        Some(rows) => rows,
        None => {
            let message = match since {
                Some(since) => counting(reader, tables, since)?,
                None => counting_query(tables, &queue::is_new(None)),
            };
            reader.run_for_each(&message)?.into_iter().next().unwrap_or_default()
        }
    };
    // This is for the next step: until something is committed the target stays at this snapshot.
    queues.counted = since.map(|since| Counted { since: since.to_owned(), rows: None });
    let shard = reader.shard();
    let entries = |row: &Vec<Option<String>>| match row.as_slice() {
        [_, rows, newest, truncated] => Ok(WindowEntries {
            rows: number::count(shard, "the number of changes in a queue", rows.as_deref())?,
            newest: newest
                .as_deref()
                .map(|at| number::count(shard, "the time of a change in microseconds", Some(at)))
                .transpose()?,
            truncated: truncated.as_deref() == Some("1"),
        }),
        _ => Ok(WindowEntries::default()),
    };
    let counted =
        rows.rows.iter().map(entries).collect::<std::result::Result<Vec<WindowEntries>, RemoteError>>()?;
    if counted.len() != tables.len() {
        return Err(RemoteError::no_number(shard, "the number of queues", &counted.len().to_string()).into());
    }
    if let Some(filled) = &mut queues.filled {
        filled.extend((0..counted.len()).filter(|position| counted[*position].rows > 0));
    }
    Ok(counted)
}

/// Returns the condition for rows of S that are on the target already, or None if none are.
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

/// What was copied for some tables.
pub struct Applied {
    /// The number of changed keys of each table.
    pub keys: Vec<i64>,
    /// The number of answers that were waited for.
    pub round_trips: u32,
}

impl Applied {
    fn add(&mut self, batch: &WindowBatch, queries: &[Queries], keys: &[u64], round_trips: u32) {
        for (query, keys) in queries.iter().zip(keys) {
            let at = batch.tables.iter().position(|position| *position == query.of);
            if let Some(known) = at.and_then(|at| self.keys.get_mut(at)) {
                *known = i64::try_from(*keys).unwrap_or(i64::MAX);
            }
        }
        if !queries.is_empty() {
            self.round_trips += round_trips;
        }
    }
}

/// Brings the rows of some tables that changed in the window, and that are below the cursors, to their state in S.
pub fn apply(engine: &mut Engine, batch: &WindowBatch, progress: &CopyProgress) -> Result<Applied> {
    let condition = condition(progress);
    let mut queries = Vec::new();
    for position in &batch.tables {
        let Some(below) = copied_rows(&progress.tables[*position]) else { continue };
        let table = &engine.tables[*position];
        queries.push(window_queries(&engine.tenure.plan, *position, table, [&condition, &below]));
    }
    let are_few = small_batch::are(batch.rows, engine.mode);
    let is_few = |query: &Queries| are_few && small_batch::is_for(&engine.tables[query.of]);
    let (as_values, mut others): (Vec<Queries>, Vec<Queries>) = queries.into_iter().partition(is_few);
    let mut applied = Applied { keys: vec![0; batch.tables.len()], round_trips: 0 };
    match small_batch::apply(engine, &as_values)? {
        Some(keys) => applied.add(batch, &as_values, &keys, small_batch::ROUND_TRIPS),
        None => others.extend(as_values),
    }
    let keys = copy_all(engine, batch, &others)?;
    applied.add(batch, &others, &keys, batch.round_trips(others.len()));
    Ok(applied)
}

/// Copies windows by COPY, whatever they contain. Returns the number of changed keys of each table.
fn copy_all(engine: &mut Engine, batch: &WindowBatch, queries: &[Queries]) -> Result<Vec<u64>> {
    // In a cutover that session's answer to an announcement is still to be received, and writers wait.
    if !batch.is_small() && engine.queues.announced.is_none() && !engine.mode.is_last() {
        measure(&mut engine.sessions.control, &engine.tables, queries)?;
    }
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, mode, .. } = engine;
    let EngineSessions { reader, target, .. } = sessions;
    let limit = mode.most_bytes();
    // Parallel processes would take the source's resources from its clients, and do not make a COPY faster beside the
    // target's own work.
    let before = if batch.is_small() { "" } else { "SET LOCAL max_parallel_workers_per_gather = 0; " };
    let pieces: Vec<CopyPiece<'_>> = queries
        .iter()
        .flat_map(|query| window_pieces(plan, &tables[query.of], query, before, limit))
        .collect();
    let copied = if batch.is_small() {
        pipe::in_turn(reader, target, pieces)
    } else {
        one_by_one(reader, target, pieces)
    };
    let copied = copied.map_err(|(piece, error)| {
        collision::explain_of(plan, &tables[queries[piece / 2].of], *mode, error)
    })?;
    Ok(copied.iter().step_by(2).map(|copied| copied.rows).collect())
}

/// Makes the source update the statistics of large queues, outside the reading transaction, whose plans use them all
/// the same. For a queue that has grown since its last statistics the planner expects 200 different keys, and half a
/// million rows were looked up one by one. Queues whose keys have an order of their own are left out.
fn measure(control: &mut Connection, tables: &[SplitTable], queries: &[Queries]) -> Result<()> {
    for table in queries.iter().map(|query| &tables[query.of]).filter(|table| table.has_plain_key()) {
        control.run(&queue::analyze(&table.queue))?;
    }
    Ok(())
}

fn one_by_one(
    reader: &mut Connection,
    target: &mut Connection,
    pieces: Vec<CopyPiece<'_>>,
) -> std::result::Result<Vec<Copied>, (usize, RemoteError)> {
    let each = pieces.into_iter().enumerate();
    each.map(|(number, piece)| pipe::one(reader, target, piece).map_err(|error| (number, error))).collect()
}

/// Returns the queries of a table's window: the keys that have changed, and the rows that they have now.
fn window_queries(plan: &Plan, of: usize, table: &SplitTable, [condition, below]: [&str; 2]) -> Queries {
    let scope = plan.scope.filter(&table.source_by, "t");
    let from = format!("{} AND {scope} AND {below}", table.changed_rows(condition));
    let rows = format!("SELECT {} FROM {from}", table.select_list());
    let short_rows = small_batch::short_rows(table, &from);
    Queries { of, keys: table.window(condition), rows, short_rows }
}

/// Returns the COPYs of a table's window: the keys that have changed, whose old rows are deleted, then the rows that
/// they have now.
fn window_pieces<'a>(
    plan: &'a Plan,
    table: &'a SplitTable,
    queries: &Queries,
    before: &str,
    limit: Option<u64>,
) -> [CopyPiece<'a>; 2] {
    let keys = CopyPiece {
        out: format!("{before}COPY ({}) TO STDOUT ({})", queries.keys, table.text_format()),
        into: format!("COPY {} FROM STDIN ({})", table.window_table(), table.text_format()),
        bounds: Bounds::unlimited(),
        look: None,
    };
    let out = format!("{before}COPY ({}) TO STDOUT ({})", queries.rows, table.format());
    let bounds = Bounds { bytes: limit, ..Bounds::unlimited() };
    let delete = table.delete_changed(&plan.scope).map(|statement| statement + "; ").concat();
    [keys, rows_piece(plan, table, out, &delete, bounds)]
}

/// Returns the COPY of the rows that a query of a table returns.
pub fn piece_of<'a>(plan: &'a Plan, table: &'a SplitTable, out: String) -> CopyPiece<'a> {
    rows_piece(plan, table, out, "", Bounds::unlimited())
}

/// Returns the COPY of rows of the source for the target: only those of the scope, whatever the source returns.
/// Another row is an error, found on the way if the bytes show it, else by the target. Statements that the target runs
/// before are sent in the same message.
fn rows_piece<'a>(
    plan: &'a Plan,
    table: &'a SplitTable,
    out: String,
    before: &str,
    bounds: Bounds,
) -> CopyPiece<'a> {
    let Some(matcher) = &table.matcher else {
        let into = format!("{before}{}", copy_scope_into(&plan.scope, table));
        return CopyPiece { out, into, bounds, look: None };
    };
    let mut filter = ScopeFilter::new(matcher.clone());
    let look: CopyLook<'_> =
        Box::new(move |bytes| filter.pass(bytes).map_err(|stray| explain(stray, plan, &table.target.name)));
    CopyPiece { out, into: format!("{before}{}", copy_into(table)), bounds, look: Some(look) }
}

fn copy_into(table: &SplitTable) -> String {
    format!("COPY {} ({}) FROM STDIN ({})", table.target.name, table.target_columns(), table.format())
}

/// Returns the statement of a COPY for which the target computes the scope.
fn copy_scope_into(scope: &Scope, table: &SplitTable) -> String {
    format!(
        "{} WHERE {} OR pg_temp.shardmaster_stray({}, {}::text)",
        copy_into(table),
        scope.arriving(&table.target_by),
        literal(&table.target.name),
        scope::arriving(&table.target_by),
    )
}

/// Deletes the scope's rows of one table on the target, in the step's transaction. From then on the split that this
/// one reverses cannot copy them again.
pub fn delete_scope(
    plan: &Plan,
    sessions: &mut EngineSessions,
    table: &SplitTable,
    key_identity: &KeyIdentity,
) -> Result<()> {
    if let Some(what) = key_identity.change(&table.target, &table.policy.shard_by) {
        return Err(told_otherwise(plan, table, &what));
    }
    if let Some(there) = plan.reverse_of {
        sessions.target.run(&consumed::purge(there))?;
    }
    sessions.target.run(&format!(
        "DELETE FROM {} t WHERE {}",
        table.target_only(),
        plan.scope.predicate(&table.target_by, "t")
    ))?;
    if key_identity.is_still(&mut sessions.target, &table.target, &table.policy.shard_by)? {
        return Ok(());
    }
    sessions.target.run("ROLLBACK")?;
    sessions.reader.run("ROLLBACK")?;
    Err(SplitError::Retry(format!("names that have just changed in {} on the target", table.target.name)))
}

/// Returns the error for a table whose copies cannot be distinguished from rows of others.
fn told_otherwise(plan: &Plan, table: &SplitTable, what: &str) -> SplitError {
    let (table, target) = (&table.target.name, &plan.target.shard_key);
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "table {table} of shard \"{target}\" has rows of the moving keys that are not those that were copied: {what}"
        ),
        "Rename it back there, then resume the split with the call that it stopped in. Or roll it back, which keeps all of these rows.",
    )
}

/// Returns the statements that remove what S has seen from the queues.
pub fn consume(split: i64, tables: &[SplitTable], queues: &QueueState, snapshot: &str, step: i64) -> String {
    let may_hold = |position: usize| queues.filled.as_ref().is_none_or(|filled| filled.contains(&position));
    let queues = tables.iter().enumerate().filter(|(position, _)| may_hold(*position));
    let mut statements: Vec<String> =
        queues.map(|(_, table)| queue::consume(&table.queue, snapshot)).collect();
    statements.push(consumed::give_away(split, step, snapshot));
    statements.join("; ")
}

#[cfg(test)]
mod tests {
    use super::{FEW, WindowBatch, WindowEntries};

    fn companies(rows: &[i64], but_for: &[usize]) -> Vec<(Vec<usize>, u32)> {
        let entries: Vec<WindowEntries> =
            rows.iter().map(|rows| WindowEntries { rows: *rows, ..WindowEntries::default() }).collect();
        let all = WindowBatch::of(&entries, but_for);
        all.into_iter().map(|batch| (batch.tables.clone(), batch.round_trips(batch.tables.len()))).collect()
    }

    #[test]
    fn few_rows_come_together_and_many_by_themselves() {
        assert_eq!(companies(&[0, 0], &[]), []);
        assert_eq!(companies(&[3, 0, 4, 5], &[2]), [(vec![0, 3], 5)]);
        assert_eq!(companies(&[FEW, 1], &[]), [(vec![0], 3), (vec![1], 3)]);
        assert_eq!(companies(&[1, FEW + 1, 2, 3], &[]), [(vec![0], 3), (vec![1], 5), (vec![2, 3], 5)]);
        assert_eq!(companies(&[i64::MAX, i64::MAX], &[]), [(vec![0], 5), (vec![1], 5)]);
    }
}
