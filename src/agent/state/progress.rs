//! The table `progress`, on a target: what its rows stand for, stored as one jsonb document in the transaction that
//! stores the rows.

use super::ask;
use crate::agent::error::{Result, SplitError};
use crate::agent::known_column::{self, KnownColumn};
use crate::agent::shape::{Leaf, TableShape};
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::remote::Connection;
use crate::remote::number::{self, MOST, MOST_BLOCKS};
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use serde::{Deserialize, Serialize};

/// The snapshot S, the cursors and the counters.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct CopyProgress {
    /// `None` if nothing has been applied yet, so that every queued change is new.
    pub snapshot: Option<String>,
    /// The server that the snapshot belongs to.
    pub server: String,
    /// The number of changes applied so far, which is the number of the last one.
    pub last_event_id: i64,
    /// When the newest of them was made, by the source's clock, in microseconds since 1970. `None` if there was none.
    #[serde(default)]
    pub last_event_at: Option<i64>,
    /// The number of committed steps; the source counts those whose changes have left the queue.
    pub steps: i64,
    /// The worker that has committed the last step, and the size of its last chunk that had another one behind it. The
    /// next worker begins with that size, or a smaller one if more workers have failed.
    #[serde(default)]
    pub worker: i64,
    #[serde(default)]
    pub chunk_blocks: Option<i64>,
    /// The queue did not take everything: before the copy starts again, every transaction that may have skipped it
    /// must have ended.
    #[serde(default)]
    pub draining: bool,
    /// The reason why nothing on the target is valid any more, so that the copy must start again. It is stored before
    /// the step that does so: that step announces itself on the source, which removes what would show the reason once
    /// more.
    #[serde(default)]
    pub again: Option<String>,
    /// The target's system identifier: pg_upgrade gives another one, and the split's triggers other oids. `None` if it
    /// was not noted yet.
    #[serde(default)]
    pub target_system: Option<String>,
    pub tables: Vec<TableProgress>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct TableProgress {
    /// The structures of the source and of the target, as they were when the split was installed.
    pub structure: String,
    #[serde(default)]
    pub target_structure: String,
    /// The columns of both sides at that time, which show that a change does not invalidate copied rows. `None` if a
    /// version stored the progress that did not keep them.
    #[serde(default)]
    pub columns: Option<Vec<KnownColumn>>,
    #[serde(default)]
    pub target_columns: Option<Vec<KnownColumn>>,
    /// What ALTER TABLE has last done to the target's columns. If the file differs, too, values may have been
    /// recomputed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_altered: Option<String>,
    /// The structure of the source's table when its change was applied to the target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replayed: String,
    pub rows_copied: i64,
    pub changes_applied: i64,
    pub bytes: i64,
    pub chunks: i64,
    pub leaves: Vec<LeafProgress>,
    /// The target's tables that were checked for rows. `None` if none was checked.
    #[serde(default)]
    pub target_leaves: Option<Vec<TargetLeaf>>,
}

/// A table of the target that rows are copied into.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct TargetLeaf {
    pub oid: String,
    /// The split's triggers on it: name, oid, xmin and whether they are enabled.
    pub triggers: String,
    /// The file after the last step. `None` if it was not read.
    #[serde(default)]
    pub filenode: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct LeafProgress {
    pub oid: String,
    pub filenode: String,
    pub triggers: String,
    pub cursor: Cursor,
    /// The number of blocks that the leaf had when it was last read.
    pub blocks: i64,
}

/// The position up to which a leaf has been copied.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cursor {
    /// Rows in blocks below this one are copied.
    Block(i64),
    /// All of the leaf is copied.
    End,
}

impl LeafProgress {
    /// Returns the progress of a leaf that is copied to its end.
    pub fn copied(leaf: &Leaf) -> LeafProgress {
        LeafProgress {
            oid: leaf.oid.clone(),
            filenode: leaf.filenode.clone().unwrap_or_default(),
            triggers: leaf.triggers.clone().unwrap_or_default(),
            cursor: Cursor::End,
            blocks: leaf.blocks,
        }
    }

    /// Returns the progress of a leaf of which nothing is copied.
    pub fn begun(leaf: &Leaf) -> LeafProgress {
        LeafProgress { cursor: Cursor::Block(0), ..LeafProgress::copied(leaf) }
    }
}

impl From<&Leaf> for TargetLeaf {
    fn from(leaf: &Leaf) -> TargetLeaf {
        TargetLeaf {
            oid: leaf.oid.clone(),
            triggers: leaf.triggers.clone().unwrap_or_default(),
            filenode: leaf.filenode.clone(),
        }
    }
}

impl TableProgress {
    pub fn is_copied(&self) -> bool {
        self.leaves.iter().all(|leaf| leaf.cursor == Cursor::End)
    }

    /// Returns the progress of a table with these two sides, without leaves.
    pub fn of(source: &TableShape, target: &TableShape) -> TableProgress {
        let mut progress = TableProgress::default();
        progress.adopt(source, target);
        progress
    }

    /// Makes its rows count as copied from now on by the columns that its two sides have.
    pub fn adopt(&mut self, source: &TableShape, target: &TableShape) {
        self.structure = source.structure();
        self.target_structure = target.structure();
        self.columns = Some(known_column::of(source));
        self.target_columns = Some(known_column::of(target));
    }

    /// Clears the file names. No file has such a name, so the next step deletes what is there and begins anew.
    pub fn forget_copies(&mut self) {
        self.leaves.iter_mut().for_each(|leaf| leaf.filenode.clear());
    }

    /// Returns the number of copied blocks and of all blocks.
    pub fn blocks(&self) -> (i64, i64) {
        self.leaves.iter().fold((0, 0), |(done, all), leaf| match leaf.cursor {
            Cursor::Block(next) => (done + next.min(leaf.blocks), all + leaf.blocks),
            Cursor::End => (done + leaf.blocks, all + leaf.blocks),
        })
    }
}

impl CopyProgress {
    /// Returns how many workers before this one have ended without having copied anything.
    pub fn failed_since(&self, worker: i64) -> i64 {
        worker.saturating_sub(self.worker).saturating_sub(1)
    }

    /// Returns the size in blocks of the first chunk of a worker. Every worker since the last step has ended before it
    /// committed one: under constant interruptions the next chunk is a quarter of the one before, down to one block.
    pub fn first_chunk(&self, worker: i64) -> i64 {
        const USUAL: i64 = 1024;
        let failed = self.failed_since(worker).clamp(0, 31);
        let blocks = self.chunk_blocks.unwrap_or(USUAL).min(USUAL);
        (blocks >> (2 * failed)).max(1)
    }

    pub fn is_copied(&self) -> bool {
        self.tables.iter().all(TableProgress::is_copied)
    }

    pub fn rows_copied(&self) -> i64 {
        number::sum(self.tables.iter().map(|t| t.rows_copied))
    }

    /// Reads what a target has stored for a split of this many tables. The caller relies on the values, so numbers
    /// that no split reaches are an error.
    pub fn read(json: &str, tables: usize) -> std::result::Result<CopyProgress, String> {
        let progress: CopyProgress = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if progress.tables.len() != tables {
            return Err(format!("it has {} tables, the split has {tables}", progress.tables.len()));
        }
        match progress.impossible() {
            Some((what, number)) => Err(format!("{what} cannot be {number}")),
            None => Ok(progress),
        }
    }

    /// Returns a number that an honest target cannot have.
    fn impossible(&self) -> Option<(&'static str, i64)> {
        let own = [
            ("last_event_id", Some(self.last_event_id), MOST),
            ("last_event_at", self.last_event_at, MOST),
            ("steps", Some(self.steps), MOST),
            ("worker", Some(self.worker), MOST),
            ("chunk_blocks", self.chunk_blocks, MOST_BLOCKS),
        ];
        let of_table = |table: &TableProgress| {
            let counts = [
                ("rows_copied", table.rows_copied),
                ("changes_applied", table.changes_applied),
                ("bytes", table.bytes),
                ("chunks", table.chunks),
            ];
            counts.map(|(what, number)| (what, Some(number), MOST))
        };
        let of_leaf = |leaf: &LeafProgress| {
            let cursor = match leaf.cursor {
                Cursor::Block(next) => Some(next),
                Cursor::End => None,
            };
            // A chunk may end behind the last possible block.
            [("cursor", cursor, 2 * MOST_BLOCKS), ("blocks", Some(leaf.blocks), MOST_BLOCKS)]
        };
        let leaves = self.tables.iter().flat_map(|table| &table.leaves);
        own.into_iter()
            .chain(self.tables.iter().flat_map(of_table))
            .chain(leaves.flat_map(of_leaf))
            .filter_map(|(what, number, most)| number.map(|number| (what, number, most)))
            .find_map(|(what, number, most)| (!(0..=most).contains(&number)).then_some((what, number)))
    }
}

/// Returns the stored form.
pub fn to_json(progress: &CopyProgress) -> String {
    // Serialising plain data to a String cannot fail.
    serde_json::to_string(progress).unwrap_or_default()
}

/// Returns the progress that is stored on a target. Returns None if there is none, or if it cannot be read.
pub fn stored(target: &mut Connection, plan: &Plan) -> Result<Option<CopyProgress>> {
    let query = format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {}", plan.id);
    let rows = ask(target, "progress", &query, &[])?;
    Ok(rows.scalar().and_then(|state| CopyProgress::read(state, plan.tables.len()).ok()))
}

/// Returns the progress and locks it until the transaction ends.
pub fn read_locked(target: &mut Connection, plan: &Plan) -> Result<CopyProgress> {
    let rows = target.run(&locked(plan.id))?;
    read_from(target, plan, &rows)
}

/// Returns the query for that.
pub fn locked(split: i64) -> String {
    format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {split} FOR UPDATE")
}

/// Reads the answer to that query.
pub fn read_from(target: &Connection, plan: &Plan, rows: &Rows) -> Result<CopyProgress> {
    let split = plan.id;
    let state = rows.scalar().ok_or(SplitError::Superseded)?;
    CopyProgress::read(state, plan.tables.len()).map_err(|error| {
        SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("progress of split {split} on shard \"{}\" cannot be read: {error}", target.shard()),
            "Somebody has changed the agent's tables there. Find out who, then roll the split back and start it again.",
        )
    })
}

/// Stores the progress in the open transaction.
pub fn store(target: &mut Connection, split: i64, progress: &CopyProgress) -> Result<()> {
    target.run(&storing(split, progress))?;
    Ok(())
}

/// Returns the statement for that, to be sent with others.
pub fn storing(split: i64, progress: &CopyProgress) -> String {
    format!(
        "UPDATE shardmaster_agent.progress SET state = {}, updated_at = clock_timestamp() WHERE split_id = {split}",
        literal(&to_json(progress))
    )
}

/// Stores the progress unless a step was committed.
pub fn store_first(target: &mut Connection, split: i64, progress: &CopyProgress) -> Result<()> {
    target.query(
        "UPDATE shardmaster_agent.progress SET state = $2 WHERE split_id = $1 AND state->>'snapshot' IS NULL",
        &[Some(&split.to_string()), Some(&to_json(progress))],
    )?;
    Ok(())
}

pub fn insert(target: &mut Connection, split: i64, progress: &CopyProgress) -> Result<()> {
    target.query(
        "INSERT INTO shardmaster_agent.progress (split_id, state) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[Some(&split.to_string()), Some(&to_json(progress))],
    )?;
    Ok(())
}

pub fn delete(split: i64) -> String {
    format!("DELETE FROM shardmaster_agent.progress WHERE split_id = {split}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number is tested alone, too large and below zero.
    #[test]
    fn numbers_that_no_split_comes_to_are_not_taken() {
        let leaf = LeafProgress {
            oid: "1".into(),
            filenode: "1".into(),
            triggers: String::new(),
            cursor: Cursor::Block(7),
            blocks: 7,
        };
        let table = TableProgress { leaves: vec![leaf], ..TableProgress::default() };
        let (last_event_at, chunk_blocks) = (Some(7), Some(7));
        let good =
            CopyProgress { tables: vec![table], last_event_at, chunk_blocks, ..CopyProgress::default() };
        let good = serde_json::to_value(&good).unwrap();
        assert!(CopyProgress::read(&good.to_string(), 1).is_ok());
        assert!(CopyProgress::read(&good.to_string(), 2).is_err());
        let paths = [
            "/last_event_id",
            "/last_event_at",
            "/steps",
            "/worker",
            "/chunk_blocks",
            "/tables/0/rows_copied",
            "/tables/0/changes_applied",
            "/tables/0/bytes",
            "/tables/0/chunks",
            "/tables/0/leaves/0/blocks",
            "/tables/0/leaves/0/cursor/block",
        ];
        for (path, number) in paths.iter().flat_map(|path| [(path, -1), (path, i64::MAX)]) {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = number.into();
            let error = CopyProgress::read(&bad.to_string(), 1).unwrap_err();
            assert!(error.contains(&number.to_string()), "{path}: {error}");
        }
    }

    #[test]
    fn the_rows_of_many_tables_have_a_sum() {
        let table = TableProgress { rows_copied: MOST, ..TableProgress::default() };
        let progress = CopyProgress { tables: vec![table; 1025], ..CopyProgress::default() };
        assert_eq!(progress.rows_copied(), i64::MAX);
    }

    #[test]
    fn a_chunk_shrinks_with_each_worker_that_got_nowhere() {
        let progress = CopyProgress { worker: 5, chunk_blocks: Some(256), ..CopyProgress::default() };
        let chunks: Vec<i64> = (5..=12).map(|worker| progress.first_chunk(worker)).collect();
        assert_eq!(chunks, [256, 256, 64, 16, 4, 1, 1, 1]);
        assert_eq!(CopyProgress { worker: 1, ..CopyProgress::default() }.first_chunk(2), 1024);
        assert_eq!(progress.first_chunk(i64::MAX), 1);
    }
}
