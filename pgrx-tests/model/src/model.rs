//! The whole model: its initial state, and its actions.

use crate::normal::{NO_MASTER, normalize};
use crate::rules::Rule;
use crate::state::{
    BASE, Back, Cause, CutoverStep, Give, Goal, Life, Master, Pc, Phase, Place, Route, State, Take, WRITERS,
    Worker, Writer,
};
use crate::{faults, properties, worker, writers};
use stateright::{Model, Property};

/// The actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A worker does its next action.
    Works(u8, Pc),
    /// A worker makes a step where a cutover could begin.
    Steps(u8),
    /// The deadline of a cutover has passed, or a shard did not answer.
    Aborts(u8),
    /// The server ends the transaction of the fence.
    FenceEnds(u8),
    /// A writer's transaction reads the state of a place.
    Begins(u8, u8),
    /// A writer writes, if the place lets it.
    Writes(u8, u8),
    Commits(u8),
    CallsCutover,
    CallsRollback,
    /// shard_split_rollback(.., target_lost => true) after a decision.
    CallsWithdraw,
    CallsFinish,
    /// shard_split_reverse, if there is a reverse split.
    CallsReverse,
    CallsResume,
    /// shard_cleanup after a split has ended, for what a shard that was set back has of it again.
    CallsCleanup,
    /// The worker of a completed split restores the state of a shard that has lost it.
    TellsAgain,
    /// From here on a standby is behind, or a snapshot of the disk is older.
    ShardFallsBehind(u8, Cause),
    MasterFallsBehind,
    /// The shard continues from there.
    ShardSetBack,
    MasterSetBack {
        old_lives: bool,
    },
    ShardCrashes(u8),
    MasterCrashes,
    WorkerEnds {
        late: bool,
    },
    /// A copy of the master, with another identity, begins to work.
    CopyBegins,
    /// A second worker of the same master begins.
    SecondBegins,
    /// A late statement never arrives.
    Vanishes,
}

impl Act {
    /// Whether this is a fault, which nobody may rely on.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Act::ShardFallsBehind(..)
                | Act::MasterFallsBehind
                | Act::ShardSetBack
                | Act::MasterSetBack { .. }
                | Act::ShardCrashes(_)
                | Act::MasterCrashes
                | Act::WorkerEnds { .. }
                | Act::CopyBegins
                | Act::SecondBegins
        )
    }
}

/// The bounds of what may happen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub writers: usize,
    /// Whether the last writer's transaction is above READ COMMITTED.
    pub old_snapshots: bool,
    /// The operator's calls for a cutover.
    pub calls: u8,
    pub rolls_back: bool,
    pub finishes: bool,
    /// The crashes of servers and workers.
    pub faults: u8,
    /// The servers that are set back.
    pub setbacks: u8,
    pub causes: &'static [Cause],
    pub shards_set_back: [bool; 2],
    pub master_set_back: bool,
    /// The cutovers, every second of which is a reverse split.
    pub legs: u8,
}

/// The model: its bounds, and the rule that is left out.
#[derive(Clone, Debug)]
pub struct Split {
    pub bounds: Bounds,
    pub without: Option<Rule>,
}

impl Split {
    pub fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    pub fn has_way_back(&self, leg: u8) -> bool {
        leg + 1 < self.bounds.legs
    }
}

const PLACE: Place = Place {
    timeline: 1,
    generation: 0,
    rows: BASE,
    give: Give::No,
    redirect: false,
    queue: [0; WRITERS],
    next_xid: 1,
    consumed: 0,
    announced: 1,
    deciding: 0,
    purging: false,
    barrier: None,
    take: Take::No,
    seen: 0,
    seen_timeline: 1,
    steps: 1,
    changed: 0,
};

impl Model for Split {
    type State = State;
    type Action = Act;

    /// Both sides are installed, the copy is complete, and a cutover may be called.
    fn init_states(&self) -> Vec<State> {
        let master = Master {
            run: 1,
            generation: 0,
            phase: Phase::Tailing,
            step: CutoverStep::None,
            goal: Goal::Tail,
            route: Route::To(0),
            purged: false,
            finished: false,
            failed: false,
            leg: 0,
        };
        let take = if self.keeps(Rule::TargetGuarded) { Take::Closed } else { Take::No };
        vec![State {
            places: [Place { give: Give::Capture, ..PLACE }, Place { take, ..PLACE }],
            masters: [master, NO_MASTER],
            workers: [Worker::idle(0), Worker::GONE],
            writers: [Writer::Ready; WRITERS],
            back: Back::Nothing,
            calls: self.bounds.calls,
            faults: self.bounds.faults,
            setbacks: self.bounds.setbacks,
            acked: BASE,
            home: 0,
            stray: 0,
            owner: 0,
            excused: false,
            misplaced: false,
        }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for number in 0..2 {
            let worker = &state.workers[number as usize];
            if worker.life == Life::Gone {
                continue;
            }
            acts.push(Act::Works(number, worker.pc));
            if worker.pc == Pc::Ready {
                acts.push(Act::Steps(number));
            }
            if worker::may_abort(worker) {
                acts.push(Act::Aborts(number));
            }
            if worker.life == Life::Late {
                acts.push(Act::Vanishes);
            }
        }
        writers::actions(self, state, acts);
        acts.extend([
            Act::CallsCutover,
            Act::CallsRollback,
            Act::CallsWithdraw,
            Act::CallsFinish,
            Act::CallsReverse,
            Act::CallsResume,
            Act::CallsCleanup,
            Act::TellsAgain,
            Act::FenceEnds(0),
            Act::FenceEnds(1),
        ]);
        faults::actions(self, state, acts);
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = *last;
        let happens = match act {
            Act::Works(number, _) => worker::work(self, &mut state, usize::from(number)),
            Act::Steps(number) => worker::steps(&mut state, usize::from(number)),
            Act::Aborts(number) => worker::abort(&mut state, usize::from(number)),
            Act::FenceEnds(place) => state.places[usize::from(place)].barrier.take().is_some(),
            Act::Begins(..) | Act::Writes(..) | Act::Commits(_) => writers::happens(self, &mut state, act),
            Act::CallsCutover
            | Act::CallsRollback
            | Act::CallsWithdraw
            | Act::CallsFinish
            | Act::CallsReverse
            | Act::CallsResume
            | Act::CallsCleanup => self.call(&mut state, act),
            Act::TellsAgain => worker::tell_again(self, &mut state),
            _ => faults::happens(self, &mut state, act),
        };
        // Most attempted actions do not happen.
        if !happens {
            return None;
        }
        normalize(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Split {
    /// An operator's call is a commit on the master.
    fn call(&self, state: &mut State, act: Act) -> bool {
        let bounds = &self.bounds;
        let master = &mut state.masters[0];
        let decided =
            master.phase == Phase::Completed && master.step == CutoverStep::Moved && !master.finished;
        match act {
            Act::CallsCutover => {
                let may = master.is_before_decision() && master.goal == Goal::Tail && master.leg == 0;
                if !may || state.calls == 0 {
                    return false;
                }
                master.goal = Goal::Cutover;
                state.calls -= 1;
                true
            }
            Act::CallsReverse => {
                let is_finishing =
                    master.goal == Goal::Finish && master.phase == Phase::Completed && !master.finished;
                if bounds.legs > 1 && is_finishing && !self.keeps(Rule::FinishEndsTheWayBack) {
                    (master.leg, master.phase, master.step) = (1, Phase::Tailing, CutoverStep::None);
                    master.goal = Goal::Cutover;
                    return true;
                }
                let may = master.is_before_decision() && master.goal == Goal::Tail && master.leg > 0;
                if !may || state.calls == 0 {
                    return false;
                }
                master.goal = Goal::Cutover;
                state.calls -= 1;
                true
            }
            Act::CallsRollback => {
                let may = bounds.rolls_back && master.is_before_decision() && master.leg == 0;
                if !may || master.goal == Goal::RollBack {
                    return false;
                }
                master.goal = Goal::RollBack;
                true
            }
            Act::CallsWithdraw => {
                let is_decided = master.phase == Phase::Completed && master.step == CutoverStep::Decided;
                if !(bounds.rolls_back && is_decided && master.leg == 0 && master.goal != Goal::RollBack) {
                    return false;
                }
                (master.failed, master.goal) = (false, Goal::RollBack);
                true
            }
            Act::CallsFinish if master.leg == 0 => {
                if !(bounds.finishes && decided && master.goal != Goal::Finish) {
                    return false;
                }
                master.goal = Goal::Finish;
                true
            }
            Act::CallsFinish => {
                // This ends the reverse split, which can no longer be called.
                if !(bounds.finishes && master.is_before_decision() && master.goal == Goal::Tail) {
                    return false;
                }
                master.goal = Goal::Finish;
                true
            }
            Act::CallsResume => std::mem::take(&mut master.failed),
            Act::CallsCleanup if master.phase == Phase::RolledBack => {
                let here = &mut state.places[master.source()];
                std::mem::replace(&mut here.give, Give::No) != Give::No
            }
            _ => false,
        }
    }
}
