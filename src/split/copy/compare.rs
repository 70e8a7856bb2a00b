//! The changes on the source since the last step, and what follows from them.

use super::leaves::{self, Since};
use crate::agent::error::{Result, SplitError};
use crate::agent::known_column;
use crate::agent::shape::{Leaf, Observation, TableShape};
use crate::agent::state::consumed::Counters;
use crate::agent::state::progress::{CopyProgress, LeafProgress, TableProgress};
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::split::table::SplitTable;
use crate::words::{from_the_beginning, gives_up};

/// What a step must do before it copies anything.
#[derive(Debug, Default)]
pub struct Differences {
    /// The reason why nothing on the target is valid any more, if there is one.
    pub restart: Option<String>,
    /// Tables (by position) whose copy starts again.
    pub reset: Vec<usize>,
    /// Tables (by position) with a partition that is copied from its beginning.
    pub grown: Vec<usize>,
    /// Tables (by position) with a partition that is not captured yet.
    pub uncaptured: Vec<usize>,
}

/// Returns why nothing on the target is valid any more, or None if it is valid.
pub fn restart(counters: &Counters, progress: &CopyProgress, now: &Observation) -> Option<String> {
    if progress.again.is_some() {
        return progress.again.clone();
    }
    if progress.snapshot.is_some() && progress.server != now.server {
        return Some(format!(
            "the source failed over or was restored (system identifier and timeline {} -> {})",
            progress.server, now.server
        ));
    }
    counters.disagreement(progress.steps).map(str::to_owned)
}

/// Compares the source in S with what the target's rows stand for. A difference that prevents the copy from continuing
/// is an error that names it.
pub fn compare(
    plan: &Plan,
    tables: &[SplitTable],
    counters: &Counters,
    progress: &CopyProgress,
    now: &Observation,
) -> Result<Differences> {
    let mut found = Differences { restart: restart(counters, progress, now), ..Differences::default() };
    for (position, table) in tables.iter().enumerate() {
        let (Some(shape), Some(known)) = (now.tables.get(position), progress.tables.get(position)) else {
            continue;
        };
        check_structure(table, shape, known)?;
        check_leaves(table, shape)?;
        let begins = known.leaves.is_empty() || found.restart.is_some();
        // A partitioned table without partitions has nothing to copy, and has begun once its columns are known.
        let has_none = shape.leaves().is_empty() && known.columns.is_some() && found.restart.is_none();
        let change = match begins {
            true if known.leaves.is_empty() && has_none => LeavesChange::None,
            true => LeavesChange::Other,
            false => changes(plan, table, shape, known)?,
        };
        if shape.leaves().iter().any(|leaf| !leaf.captured) && guc::capture() {
            found.uncaptured.push(position);
            continue;
        }
        match change {
            LeavesChange::None => {}
            LeavesChange::Grown => found.grown.push(position),
            LeavesChange::Other => found.reset.push(position),
        }
    }
    Ok(found)
}

fn check_structure(table: &SplitTable, now: &TableShape, known: &TableProgress) -> Result<()> {
    if !table.differences.is_empty() {
        return Err(reshaped(table, &table.differences.join("; ")));
    }
    let structure = now.structure();
    let before = if known.structure.is_empty() { table.source.structure() } else { known.structure.clone() };
    if structure == before && structure == table.source.structure() {
        return Ok(());
    }
    Err(reshaped(table, &format!("before: {before}; now: {structure}")))
}

fn reshaped(table: &SplitTable, detail: &str) -> SplitError {
    match schema_changed(table, detail) {
        SplitError::Failed(failure) => SplitError::Reshaped(failure),
        other => other,
    }
}

fn schema_changed(table: &SplitTable, detail: &str) -> SplitError {
    SplitError::Failed(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("table {} changed on the source while its rows move", table.source.name),
        )
        .detail(detail.to_owned())
        .hint("Undo the change and resume the split with the call that it stopped in. Or roll it back and start it again."),
    )
}

fn check_leaves(table: &SplitTable, now: &TableShape) -> Result<()> {
    if let Some(heir) = &now.heir {
        return Err(schema_changed(table, &format!("{heir} inherits from it")));
    }
    for leaf in now.leaves() {
        if leaf.persistence != "p" || leaf.kind != "r" {
            return Err(schema_changed(table, &format!("{} is not an ordinary, logged table", leaf.name)));
        }
    }
    Ok(())
}

/// What happened to a table's leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeavesChange {
    None,
    /// There are new ones; in the others rows are where they were.
    Grown,
    /// Rows may be in other places than the cursors assume.
    Other,
}

fn changes(plan: &Plan, table: &SplitTable, now: &TableShape, known: &TableProgress) -> Result<LeavesChange> {
    let is_there = |known: &LeafProgress| now.leaves().iter().any(|leaf| leaf.oid == known.oid);
    let mut other = !known.leaves.iter().all(is_there);
    let mut grown = false;
    for leaf in now.leaves() {
        let Some(before) = known.leaves.iter().find(|l| l.oid == leaf.oid) else {
            grown = true;
            continue;
        };
        match leaves::since(Some(&before.triggers), leaf) {
            Since::Same => {}
            // The leaf was detached and attached again: what was written meanwhile was not captured.
            Since::New => other = true,
            Since::Unguarded => return Err(unseen(plan, table, before, leaf)),
        }
        other |= Some(before.filenode.as_str()) != leaf.filenode.as_deref();
    }
    Ok(match (other, grown) {
        (true, _) => LeavesChange::Other,
        (false, true) => LeavesChange::Grown,
        (false, false) => LeavesChange::None,
    })
}

/// Returns the error for a leaf whose triggers are restored but have missed writes: only a copy from the beginning has
/// these.
fn unseen(plan: &Plan, table: &SplitTable, before: &LeafProgress, now: &Leaf) -> SplitError {
    let (name, leaf) = (&table.source.name, &now.name);
    SplitError::Failed(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("the capture of table {name} was changed on the source while its rows move"),
        )
        .detail(format!(
            "capture triggers of {leaf}: before: {}; now: {}",
            before.triggers,
            now.triggers.as_deref().unwrap_or("none")
        ))
        .hint(match plan.reverse_of {
            None => {
                format!("The split has missed what was written meanwhile: {}", from_the_beginning(plan.id))
            }
            Some(there) => gives_up(plan.id, there),
        }),
    )
}

/// Adds new leaves: their rows are not on the target yet, and those of the others stay where they are.
pub fn grow(shape: &TableShape, table: &mut TableProgress) {
    let is_new = |leaf: &&Leaf| !table.leaves.iter().any(|known| known.oid == leaf.oid);
    let new: Vec<LeafProgress> = shape.leaves().iter().filter(is_new).map(LeafProgress::begun).collect();
    table.leaves.extend(new);
}

/// Returns the state of a table whose copy begins.
pub fn fresh(shape: &TableShape, before: &TableProgress) -> TableProgress {
    TableProgress {
        structure: shape.structure(),
        rows_copied: 0,
        leaves: shape.leaves().iter().map(LeafProgress::begun).collect(),
        columns: Some(known_column::of(shape)),
        ..before.clone()
    }
}
