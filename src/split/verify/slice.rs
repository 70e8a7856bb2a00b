//! What all comparisons of slices share.

use super::changes::Changes;
use super::rows::{self, SliceResult};
use crate::agent::error::Result;
use crate::agent::state::progress::CopyProgress;
use crate::catalog::split::Plan;
use crate::catalog::verification::{RowDifference, Verification, VerificationStatus};
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::split::engine::SideStructures;
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::stream::{StreamSessions, Streams};
use crate::split::engine::verification::{Run, When};
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;

/// The numbers of blocks of the smallest slice, and of the largest.
pub const LEAST_BLOCKS: i64 = 64;
pub const MOST_BLOCKS: i64 = 1 << 16;

/// A table whose rows are being compared.
#[derive(Clone, Copy)]
pub struct ComparedTable<'a> {
    /// What is recorded of it.
    pub record: &'a Verification,
    pub table: &'a SplitTable,
    /// Its position among the split's tables.
    pub position: usize,
    pub when: When,
    pub progress: &'a CopyProgress,
}

/// Returns the position of the table with this ordinal, or None if there is none.
pub fn position_of(tables: &[SplitTable], ordinal: i32) -> Option<usize> {
    tables.iter().position(|table| table.policy.ordinal == ordinal)
}

/// Creates before a step what the sessions need for the rows of the next table, if they are to be compared.
pub fn prepare_next(
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    seen: &mut SideStructures,
    run: &mut Run,
) -> Result<()> {
    let next = run.tables.first().map(|table| table.ordinal).filter(|_| run.wants_tables);
    let Some(position) = next.and_then(|ordinal| position_of(tables, ordinal)) else { return Ok(()) };
    let EngineSessions { reader, target, streams, .. } = sessions;
    if run.prepared != next {
        rows::prepare_source(reader, &tables[position])?;
        rows::prepare_target(target, &tables[position])?;
        run.prepared = next;
        // The next observation checks whether they fit the tables as they are.
        seen.source.forget();
        seen.target.forget();
    }
    for StreamSessions { reader, writer, prepared } in &mut streams.open {
        if *prepared != next {
            rows::prepare_source(reader, &tables[position])?;
            rows::prepare_target(writer, &tables[position])?;
            *prepared = next;
        }
    }
    Ok(())
}

/// Returns the number of pairs of sessions that compare: the step's, and those of the streams that see what it sees.
pub fn pair_count(streams: &Streams) -> usize {
    streams.held + 1
}

/// Passes the point between a comparison by several pairs and its record.
pub fn reach_compared(streams: &Streams) -> Result<()> {
    if streams.held > 0 {
        reach(injection_points::STREAMS_COMPARED)?;
    }
    Ok(())
}

/// Creates what the pairs need for a table's rows, and returns how many of the first ones have it. Within a step before
/// the cutover it can be created only for the next step, since a read-only transaction creates no table; afterwards the
/// target's session suffices, in a transaction that is rolled back.
pub fn prepare(sessions: &mut EngineSessions, run: &mut Run, of: ComparedTable<'_>) -> Result<usize> {
    let ComparedTable { record, table, when, .. } = of;
    let EngineSessions { target, streams, .. } = sessions;
    let held = streams.held;
    let streams = streams.open.iter_mut().take(held);
    let own = (target, &mut run.prepared);
    let all = std::iter::once(own).chain(streams.map(|stream| (&mut stream.writer, &mut stream.prepared)));
    let mut count = 0;
    for (target, prepared) in all {
        if *prepared != Some(record.ordinal) {
            if when == When::BeforeCutover {
                break;
            }
            rows::prepare_target(target, table)?;
            *prepared = Some(record.ordinal);
        }
        count += 1;
    }
    run.wants_tables |= count < held + 1;
    Ok(count)
}

/// Returns the condition under which a row that differs on the target is not reported.
pub fn unless(plan: &Plan, target: &mut Connection, of: ComparedTable<'_>) -> Result<String> {
    let ComparedTable { table, position, when, progress, .. } = of;
    if when == When::BeforeCutover {
        return Ok("false".to_owned());
    }
    let mut changes = Changes::of(plan, progress, table, position);
    changes.look(plan, target, table)?;
    require_noted(target, &changes)?;
    Ok(changes.explain(plan, table))
}

/// Refuses to decide which rows clients have changed if the log of them is too long.
pub fn require_noted(target: &mut Connection, changes: &Changes) -> Result<()> {
    if target.run(&format!("SELECT {}", changes.are_incomplete()))?.scalar() != Some("t") {
        return Ok(());
    }
    Err(Failure::new(
        SqlState::NOT_IN_STATE,
        "not all rows that clients have changed since the cutover are known: the log of them is full (shardmaster.queue_max_size)",
    )
    .into())
}

/// Returns what is stored of a table after more rows were compared, and the differing rows.
pub fn noted(
    table: Verification,
    compared: SliceResult,
    status: VerificationStatus,
    position: String,
) -> (Verification, Vec<RowDifference>) {
    let next = Verification {
        status,
        position,
        rows: table.rows + compared.rows,
        bytes: table.bytes + compared.bytes,
        differing: table.differing + compared.differing,
        example: table.example.or_else(|| compared.found.first().cloned()),
        ..table
    };
    (next, compared.found)
}
