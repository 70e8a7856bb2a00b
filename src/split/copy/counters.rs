//! How many steps each side knows of, which tells when one of them was set back.
//!
//! Invariant: the source counts a step before the target commits it (`announced`) and,
//! if it had changes, once more when they leave the queue (`consumed`), so that
//! `consumed <= steps on the target <= announced`. Both writes are durable before the next
//! one begins. A target below has lost steps whose changes are in no queue any more; a
//! source above which the target stands has lost its queue, its fence, and changes that
//! clients take for committed.

use crate::agent::error::Result;
use crate::remote::number;
use crate::remote::quote::literal;
use crate::split::engine::Engine;

/// The source's counters, in the step's snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The last step whose changes the queue has given away.
    pub consumed: i64,
    /// The last step that the target was about to commit.
    pub announced: i64,
    /// The queue did not take everything.
    pub overflowed: bool,
}

impl Counters {
    /// Why what the target holds does not count any more; None: both sides agree.
    pub fn disagreement(self, steps: i64) -> Option<&'static str> {
        if steps < self.consumed {
            Some("the target failed over or was restored to a time before")
        } else if steps > self.announced {
            Some("the source was restored to a time before")
        } else {
            None
        }
    }

    /// The number of the next step: higher than all that either side has seen.
    pub fn next_step(self, steps: i64) -> i64 {
        steps.max(self.announced) + 1
    }
}

/// Reads the counters in S, and keeps them for the step's commit.
pub fn read(engine: &mut Engine) -> Result<Counters> {
    let id = engine.plan.id;
    let rows = engine.reader.run(&format!(
        "SELECT c.steps, c.announced,
                EXISTS (SELECT 1 FROM shardmaster_agent.overflow o WHERE o.split_id = {id})
           FROM shardmaster_agent.consumed c WHERE c.split_id = {id}"
    ))?;
    // Without its row the source has forgotten all of it.
    let cells: Vec<&str> = rows.rows.iter().flatten().map(|cell| cell.as_deref().unwrap_or("")).collect();
    let steps = |at: usize| {
        let cell = if cells.is_empty() { Some("0") } else { cells.get(at).copied() };
        number::count(engine.reader.shard(), "the number of a step", cell)
    };
    let (consumed, announced) = (steps(0)?, steps(1)?);
    engine.counters = Counters { consumed, announced, overflowed: cells.get(2) == Some(&"t") };
    Ok(engine.counters)
}

/// The statement that announces a step on the source.
pub fn announce(split: i64, step: i64) -> String {
    format!("UPDATE shardmaster_agent.consumed SET announced = {step} WHERE split_id = {split}")
}

/// What follows `announce` with the last window of a cutover: until it, no decision can
/// have been made. Whose run of the master may make one is kept.
pub fn deciding(split: i64, instance: &str) -> String {
    format!(
        "; UPDATE shardmaster_agent.consumed SET deciding = {} WHERE split_id = {split}",
        literal(instance)
    )
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
