//! The phases of a split: their order, and the permitted changes.

use crate::catalog::split_state::{Goal, Phase};

/// A permitted change of phase.
pub struct Transition {
    pub from: Phase,
    pub to: Phase,
    /// What causes it, for people.
    pub when: &'static str,
}

const fn change(from: Phase, to: Phase, when: &'static str) -> Transition {
    Transition { from, to, when }
}

/// Every permitted change of phase.
pub const TRANSITIONS: &[Transition] = &[
    change(Phase::Planning, Phase::DualWrite, "the check has passed and capture is installed"),
    change(Phase::RolledBack, Phase::Planning, "the plan runs again"),
    change(Phase::DualWrite, Phase::Backfill, "the copy was requested"),
    change(Phase::Backfill, Phase::Tailing, "every table is copied"),
    change(Phase::Tailing, Phase::CutoverPending, "the lag is below shardmaster.max_lag"),
    change(Phase::Tailing, Phase::Backfill, "the copy had to start again"),
    change(Phase::CutoverPending, Phase::Backfill, "the copy had to start again"),
    change(Phase::CutoverPending, Phase::Completed, "the cutover has decided"),
    change(
        Phase::Completed,
        Phase::CutoverPending,
        "the decision was withdrawn: no shard has carried it out",
    ),
    change(Phase::Planning, Phase::RolledBack, "rolled back"),
    change(Phase::DualWrite, Phase::RolledBack, "rolled back"),
    change(Phase::Backfill, Phase::RolledBack, "rolled back"),
    change(Phase::Tailing, Phase::RolledBack, "rolled back"),
    change(Phase::CutoverPending, Phase::RolledBack, "rolled back"),
];

/// Returns the rule that permits the change, if there is one.
pub fn transition(from: Phase, to: Phase) -> Option<&'static Transition> {
    TRANSITIONS.iter().find(|t| t.from == from && t.to == to)
}

/// The phases of a split that continues, in their order.
pub const WAY: [Phase; 6] = [
    Phase::Planning,
    Phase::DualWrite,
    Phase::Backfill,
    Phase::Tailing,
    Phase::CutoverPending,
    Phase::Completed,
];

/// Returns the position of a phase on the way, or None if the split was rolled back.
pub fn position(phase: Phase) -> Option<usize> {
    WAY.iter().position(|one| *one == phase)
}

/// Returns the phases in which the source's changes are queued, as a list in SQL.
pub fn capturing() -> String {
    let names =
        between(Phase::Planning, Phase::Completed).iter().map(|phase| format!("'{}'", phase.as_str()));
    names.collect::<Vec<_>>().join(", ")
}

/// Whether the cutover has decided: nothing is aborted any more.
pub fn is_decided(phase: Phase) -> bool {
    phase == Phase::Completed
}

/// Whether a cutover may be running; its step shows whether one was begun.
pub fn is_before_decision(phase: Phase) -> bool {
    phase == Phase::CutoverPending
}

/// Whether capture and guard are installed, and nothing is copied.
pub fn is_only_installed(phase: Phase) -> bool {
    phase == Phase::DualWrite
}

/// Whether a cutover, or all of the split, was requested.
pub fn asks_for_cutover(goal: Goal) -> bool {
    matches!(goal, Goal::Completed | Goal::Finished)
}

/// Returns the phases that come before `end`, after `phase`; a plan that was rolled back begins anew.
pub fn between(phase: Phase, end: Phase) -> &'static [Phase] {
    let first = position(phase).map_or(0, |at| at + 1);
    let last = position(end).unwrap_or(WAY.len());
    WAY.get(first..last).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_can_be_reached() {
        let mut reached = vec![Phase::Planning];
        loop {
            let next = TRANSITIONS
                .iter()
                .find(|change| reached.contains(&change.from) && !reached.contains(&change.to));
            let Some(next) = next else { break };
            reached.push(next.to);
        }
        assert!(Phase::ALL.iter().all(|phase| reached.contains(phase)), "{reached:?}");
    }

    #[test]
    fn every_phase_but_the_last_can_be_left() {
        for phase in Phase::ALL.iter().filter(|phase| **phase != Phase::Completed) {
            assert!(TRANSITIONS.iter().any(|change| change.from == *phase), "{phase:?}");
        }
    }

    #[test]
    fn no_change_is_there_twice() {
        for (n, change) in TRANSITIONS.iter().enumerate() {
            let others = &TRANSITIONS[n + 1..];
            assert!(!others.iter().any(|other| (other.from, other.to) == (change.from, change.to)));
        }
    }

    /// A master that was restored to an earlier time catches up with its shards only by permitted changes.
    #[test]
    fn whatever_comes_before_an_end_can_be_caught_up() {
        for from in Phase::ALL.iter().filter(|phase| **phase != Phase::Completed) {
            let mut now = *from;
            for to in between(*from, Phase::Completed) {
                assert!(transition(now, *to).is_some(), "{from:?}: {now:?} to {to:?}");
                now = *to;
            }
        }
    }

    #[test]
    fn each_step_of_the_way_is_allowed() {
        for pair in WAY.windows(2) {
            assert!(transition(pair[0], pair[1]).is_some(), "{pair:?}");
        }
        // A plan that is installed anew does not count as rolled back, and can be rolled back.
        assert!(transition(Phase::RolledBack, WAY[0]).is_some());
    }
}
