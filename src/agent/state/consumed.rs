//! The table `consumed`, on a source: what has left the queue, and which of the steps that cannot be undone are about
//! to follow.
//!
//! Invariant: the source counts a step before the target commits it (`announced`) and, if it had changes, once more
//! when they leave the queue (`steps`), so that `steps <= steps on the target <= announced`. Both writes are durable
//! before the next one begins. A target below this range has lost steps whose changes are in no queue any more; a
//! source whose range is below the target has lost its queue, its fence, and changes that clients regard as committed.

use crate::agent::error::Result;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError, number};

/// The source's counters, in one snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The last step whose changes have left the queue.
    pub consumed: i64,
    /// The last step that the target was about to commit.
    pub announced: i64,
    /// The queue did not take everything.
    pub overflowed: bool,
}

impl Counters {
    /// Returns why what the target holds is no longer valid, or None if both sides agree.
    pub fn disagreement(self, steps: i64) -> Option<&'static str> {
        if steps < self.consumed {
            Some("the target failed over or was restored to an earlier time")
        } else if steps > self.announced {
            Some("the source was restored to an earlier time")
        } else {
            None
        }
    }

    /// Returns the number of the next step: higher than all that either side has seen.
    pub fn next_step(self, steps: i64) -> i64 {
        steps.max(self.announced) + 1
    }
}

/// Reads the counters, and whether there is a mark of an overflow.
pub fn counters(source: &mut Connection, split: i64) -> Result<Counters> {
    let rows = source.run(&asked(split))?;
    Ok(read(source.shard(), &rows)?)
}

/// Returns the query for the counters.
pub fn asked(split: i64) -> String {
    format!(
        "SELECT c.steps, c.announced,
                EXISTS (SELECT 1 FROM shardmaster_agent.overflow o WHERE o.split_id = {split})
           FROM shardmaster_agent.consumed c WHERE c.split_id = {split}"
    )
}

/// Reads the answer to that query.
pub fn read(shard: &str, rows: &Rows) -> std::result::Result<Counters, RemoteError> {
    let cells: Vec<&str> = rows.rows.iter().flatten().map(|cell| cell.as_deref().unwrap_or("")).collect();
    // A source without the row has forgotten all of it.
    let steps = |at: usize| {
        let cell = if cells.is_empty() { Some("0") } else { cells.get(at).copied() };
        number::count(shard, "the number of a step", cell)
    };
    Ok(Counters { consumed: steps(0)?, announced: steps(1)?, overflowed: cells.get(2) == Some(&"t") })
}

/// One column of the row, as text.
fn value(source: &mut Connection, split: i64, column: &str) -> Result<Option<String>> {
    let rows =
        source.run(&format!("SELECT {column} FROM shardmaster_agent.consumed WHERE split_id = {split}"))?;
    Ok(rows.scalar().map(str::to_owned))
}

/// Returns the snapshot up to which changes have left the queue.
pub fn snapshot(source: &mut Connection, split: i64) -> Result<Option<String>> {
    value(source, split, "snapshot")
}

/// Returns which run of the master may have decided the cutover.
pub fn deciding(source: &mut Connection, split: i64) -> Result<Option<String>> {
    value(source, split, "deciding")
}

/// Whether finish has begun to delete.
pub fn is_purging(source: &mut Connection, split: i64) -> Result<bool> {
    Ok(value(source, split, "purging")?.as_deref() == Some("t"))
}

pub fn insert(source: &mut Connection, split: i64) -> Result<()> {
    source.run(&format!(
        "INSERT INTO shardmaster_agent.consumed (split_id) VALUES ({split}) ON CONFLICT DO NOTHING"
    ))?;
    Ok(())
}

fn update(split: i64, set: &str) -> String {
    format!("UPDATE shardmaster_agent.consumed SET {set} WHERE split_id = {split}")
}

/// Returns the statement that announces a step on the source.
pub fn announce(split: i64, step: i64) -> String {
    update(split, &format!("announced = {step}"))
}

/// Returns the statement that counts a step whose changes have left the queue.
pub fn give_away(split: i64, step: i64, snapshot: &str) -> String {
    update(split, &format!("snapshot = {}::pg_snapshot, steps = {step}", literal(snapshot)))
}

/// Returns the statement that follows `announce` in the last window of a cutover: no decision can have been made
/// before it. It stores which run of the master may make one.
pub fn decide(split: i64, instance: &str) -> String {
    update(split, &format!("deciding = {}", literal(instance)))
}

/// Returns the statement that excludes a decision from now on.
pub fn forget_decision(split: i64) -> String {
    format!("{} AND deciding IS NOT NULL", update(split, "deciding = NULL"))
}

/// Returns the statement that marks the begin of deletions on the source: its rows cannot be copied again.
pub fn purge(split: i64) -> String {
    update(split, "purging = true")
}

pub fn delete(split: i64) -> String {
    format!("DELETE FROM shardmaster_agent.consumed WHERE split_id = {split}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_was_set_back_is_noticed() {
        let counters = Counters { consumed: 4, announced: 6, overflowed: false };
        for steps in 4..=6 {
            assert_eq!(counters.disagreement(steps), None, "{steps}");
        }
        assert!(counters.disagreement(3).is_some_and(|why| why.contains("target")));
        assert!(counters.disagreement(7).is_some_and(|why| why.contains("source")));
    }

    #[test]
    fn a_step_is_newer_than_what_either_side_has_seen() {
        let counters = Counters { consumed: 4, announced: 6, overflowed: false };
        assert_eq!((counters.next_step(2), counters.next_step(9)), (7, 10));
    }
}
