//! The table `progress`, on a target: what its rows stand for, stored as one jsonb document
//! in the transaction that stores the rows.

use super::has;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::remote::Connection;
use serde::{Deserialize, Serialize};

/// The snapshot S, the cursors and the counters.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Progress {
    /// None: nothing has been applied yet, every queued change is new.
    pub snapshot: Option<String>,
    /// The server that the snapshot belongs to.
    pub server: String,
    /// How many changes have been applied so far: the number of the last one.
    pub last_event_id: i64,
    /// When the newest of them was made, by the source's clock. None: there was none.
    #[serde(default)]
    pub last_event_at: Option<String>,
    /// Steps committed; the source counts the ones whose queue is consumed.
    pub steps: i64,
    /// The worker that has committed the last step, and the size of its last chunk that had
    /// another behind it: where the next worker begins, the smaller the more have failed.
    #[serde(default)]
    pub worker: i64,
    #[serde(default)]
    pub chunk_blocks: Option<i64>,
    /// The queue did not take everything: before the copy starts again, every
    /// transaction that may have skipped it must have ended.
    #[serde(default)]
    pub draining: bool,
    /// The target's system identifier: pg_upgrade gives another one, and our triggers other
    /// oids. None: not noted yet.
    #[serde(default)]
    pub target_system: Option<String>,
    pub tables: Vec<TableProgress>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct TableProgress {
    /// Of the source, and of the target, as they were when the split was installed.
    pub structure: String,
    #[serde(default)]
    pub target_structure: String,
    pub rows_copied: i64,
    pub changes_applied: i64,
    pub bytes: i64,
    pub chunks: i64,
    pub leaves: Vec<LeafProgress>,
    /// Of the target, those that have been looked through; None: nobody has looked.
    #[serde(default)]
    pub target_leaves: Option<Vec<TargetLeaf>>,
}

/// A table of the target that rows go into.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct TargetLeaf {
    pub oid: String,
    /// Our triggers on it: name, oid, xmin and whether they are enabled.
    pub triggers: String,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct LeafProgress {
    pub oid: String,
    pub filenode: String,
    pub triggers: String,
    pub cursor: Cursor,
    /// Blocks that the leaf had when it was last looked at.
    pub blocks: i64,
}

/// Up to where a leaf has been copied.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cursor {
    /// Rows in blocks below this one.
    Block(i64),
    /// All of it.
    End,
}

impl TableProgress {
    pub fn is_copied(&self) -> bool {
        self.leaves.iter().all(|leaf| leaf.cursor == Cursor::End)
    }

    /// Blocks copied and blocks in all.
    pub fn blocks(&self) -> (i64, i64) {
        self.leaves.iter().fold((0, 0), |(done, all), leaf| match leaf.cursor {
            Cursor::Block(next) => (done + next.min(leaf.blocks), all + leaf.blocks),
            Cursor::End => (done + leaf.blocks, all + leaf.blocks),
        })
    }
}

impl Progress {
    /// Blocks of the first chunk of a worker. Every worker since the last step has ended
    /// before it committed one: under constant interruptions the next chunk is a quarter
    /// of the one before, down to one block.
    pub fn first_chunk(&self, worker: i64) -> i64 {
        const USUAL: i64 = 1024;
        let failed = worker.saturating_sub(self.worker).saturating_sub(1).clamp(0, 31);
        let blocks = self.chunk_blocks.unwrap_or(USUAL).min(USUAL);
        (blocks >> (2 * failed)).max(1)
    }

    pub fn is_copied(&self) -> bool {
        self.tables.iter().all(TableProgress::is_copied)
    }

    pub fn rows_copied(&self) -> i64 {
        self.tables.iter().map(|t| t.rows_copied).sum()
    }
}

/// The stored form.
fn to_json(progress: &Progress) -> String {
    // Serialising plain data to a String has no way to fail.
    serde_json::to_string(progress).unwrap_or_default()
}

/// The progress that is stored on a target; None: there is none, or none that can be read.
pub fn stored(target: &mut Connection, split: i64) -> Result<Option<Progress>> {
    if !has(target, "progress")? {
        return Ok(None);
    }
    let rows =
        target.run(&format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {split}"))?;
    Ok(rows.scalar().and_then(|state| serde_json::from_str(state).ok()))
}

/// The same, kept from changing until the transaction ends.
pub fn lock(target: &mut Connection, split: i64) -> Result<Progress> {
    let rows = target
        .run(&format!("SELECT state FROM shardmaster_agent.progress WHERE split_id = {split} FOR UPDATE"))?;
    let state = rows.scalar().ok_or(SplitError::Superseded)?;
    serde_json::from_str(state).map_err(|error| {
        SplitError::failed(
            SqlState::INTERNAL,
            format!("progress of split {split} on shard \"{}\" cannot be read: {error}", target.shard()),
            "Roll the split back and start it again.",
        )
    })
}

/// Stored in the transaction that is open.
pub fn store(target: &mut Connection, split: i64, progress: &Progress) -> Result<()> {
    target.query(
        "UPDATE shardmaster_agent.progress SET state = $2, updated_at = clock_timestamp() WHERE split_id = $1",
        &[Some(&split.to_string()), Some(&to_json(progress))],
    )?;
    Ok(())
}

/// The same, as long as no step was committed.
pub fn store_first(target: &mut Connection, split: i64, progress: &Progress) -> Result<()> {
    target.query(
        "UPDATE shardmaster_agent.progress SET state = $2 WHERE split_id = $1 AND state->>'snapshot' IS NULL",
        &[Some(&split.to_string()), Some(&to_json(progress))],
    )?;
    Ok(())
}

pub fn insert(target: &mut Connection, split: i64, progress: &Progress) -> Result<()> {
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

    #[test]
    fn a_chunk_shrinks_with_each_worker_that_got_nowhere() {
        let progress = Progress { worker: 5, chunk_blocks: Some(256), ..Progress::default() };
        let chunks: Vec<i64> = (5..=12).map(|worker| progress.first_chunk(worker)).collect();
        assert_eq!(chunks, [256, 256, 64, 16, 4, 1, 1, 1]);
        assert_eq!(Progress { worker: 1, ..Progress::default() }.first_chunk(2), 1024);
        assert_eq!(progress.first_chunk(i64::MAX), 1);
    }
}
