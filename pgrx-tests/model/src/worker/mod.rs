//! A split's worker, one commit at a time. If its sessions are gone, it starts over, as the code does after an error.

mod complete;
mod cutover;
mod finish;
mod rollback;
mod step;
mod take_over;
mod withdraw;

use crate::model::Split;
use crate::rules::Rule;
use crate::state::{Back, Cause, CutoverStep, Give, Goal, Life, Master, Pc, Phase, State, Take, Worker};

/// A worker at work: the state, and which worker it is.
pub struct At<'a> {
    split: &'a Split,
    state: &'a mut State,
    number: usize,
}

impl At<'_> {
    fn me(&mut self) -> &mut Worker {
        &mut self.state.workers[self.number]
    }

    fn master(&mut self) -> &mut Master {
        let master = self.state.workers[self.number].master;
        &mut self.state.masters[usize::from(master)]
    }

    /// Returns the place that gives the plan's rows away. `target` is the other one.
    fn source(&mut self) -> usize {
        self.me().source_place()
    }

    fn target(&mut self) -> usize {
        1 - self.source()
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.split.keeps(rule)
    }

    fn goes(&mut self, pc: Pc) -> bool {
        self.me().pc = pc;
        true
    }

    /// An error: the sessions are closed, and the plan is read again.
    fn fails(&mut self) -> bool {
        let me = self.me();
        if me.life == Life::Late {
            *me = Worker::GONE;
            return true;
        }
        // Up to the decision an error aborts the cutover.
        let aborts = Pc::Disable <= me.pc && me.pc <= Pc::Decide || me.pc == Pc::AbortReopen;
        (me.source, me.target) = (false, false);
        self.release();
        if aborts {
            return self.goes(Pc::GiveUp);
        }
        self.rests()
    }

    /// A piece of work is done.
    fn rests(&mut self) -> bool {
        let master = self.me().master;
        // The worker of an old primary is replaced. It gets no further than its sessions.
        *self.me() = if master == 0 || !self.split.keeps(Rule::MasterIdentity) {
            Worker::idle(master)
        } else {
            Worker::GONE
        };
        true
    }

    /// The split waits for its operator.
    fn is_refused(&mut self) -> bool {
        self.master().failed = true;
        self.rests()
    }

    /// The fence's session ends with its worker.
    fn release(&mut self) {
        let number = self.number as u8;
        for place in &mut self.state.places {
            if place.barrier == Some(number) {
                place.barrier = None;
            }
        }
    }

    /// A commit on a shard is synchronous, so clients' earlier commits there are durable as well.
    fn commits_on(&mut self, place: usize) {
        if let Back::Place(at, Cause::Asynchronous, _) = self.state.back
            && usize::from(at) == place
        {
            self.state.back = Back::Nothing;
        }
    }

    /// Whether the worker's generation lets it change the source.
    fn may_on_source(&mut self) -> bool {
        let source = self.source();
        let (has, is) = (self.me().source, self.me().on_source);
        has && (!self.keeps(Rule::GenerationOnShards) || self.state.places[source].generation == is)
    }

    fn may_on_target(&mut self) -> bool {
        let target = self.target();
        let (has, is) = (self.me().target, self.me().on_target);
        has && (!self.keeps(Rule::GenerationOnShards) || self.state.places[target].generation == is)
    }

    /// Whether the worker's generation lets it change the master.
    fn may_on_master(&mut self) -> bool {
        let generation = self.me().generation;
        !self.keeps(Rule::GenerationOnMaster) || self.master().generation == generation
    }
}

/// Does the worker's next action. False: it waits.
pub fn work(split: &Split, state: &mut State, number: usize) -> bool {
    let is_late = state.workers[number].life == Life::Late;
    let mut at = At { split, state, number };
    let done = one(&mut at);
    if done && is_late {
        // That was its last statement.
        state.workers[number] = Worker::GONE;
    }
    done
}

fn one(at: &mut At) -> bool {
    match at.me().pc {
        Pc::Idle => take_over::begin(at),
        Pc::TakeTarget | Pc::TakeSource | Pc::Settle | Pc::SettleOpen | Pc::SettleRoutes | Pc::Adopt => {
            take_over::work(at)
        }
        Pc::RevertTake | Pc::RevertOpen | Pc::RevertRoutes => take_over::revert(at),
        Pc::Ready => cutover::ready(at),
        Pc::StepSnapshot | Pc::StepAnnounce | Pc::StepCommit | Pc::StepProgress | Pc::StepConsume => {
            step::work(at)
        }
        Pc::Disable
        | Pc::Lock
        | Pc::Fence
        | Pc::Held
        | Pc::Snapshot
        | Pc::Announce
        | Pc::Commit
        | Pc::Progress => cutover::before(at),
        Pc::Consume | Pc::Decide | Pc::Open | Pc::Move | Pc::Release | Pc::Record => cutover::behind(at),
        Pc::AbortReopen | Pc::AbortRelease | Pc::GiveUp => cutover::aborted(at),
        Pc::SettledTarget | Pc::SettledSource | Pc::SettledLook | Pc::SettledOpen | Pc::SettledMove => {
            complete::settled(at)
        }
        Pc::Complete | Pc::CompleteLock | Pc::CompleteFence | Pc::CompleteHeld | Pc::CompleteRelease => {
            complete::work(at)
        }
        Pc::UndoLook
        | Pc::UndoLookBoth
        | Pc::UndoTake
        | Pc::UndoOpen
        | Pc::UndoRoutes
        | Pc::UndoSource
        | Pc::UndoTakeTarget
        | Pc::UndoRows
        | Pc::UndoTarget
        | Pc::UndoEnd => rollback::work(at),
        Pc::WithdrawTarget | Pc::WithdrawSource | Pc::Withdraw => withdraw::work(at),
        _ => finish::work(at),
    }
}

/// Makes an ordinary step before anything else.
pub fn steps(state: &mut State, number: usize) -> bool {
    let worker = &mut state.workers[number];
    if worker.pc != Pc::Ready {
        return false;
    }
    (worker.pc, worker.completes) = (Pc::StepSnapshot, false);
    true
}

/// Whether a deadline may abort the worker's cutover.
pub fn may_abort(worker: &Worker) -> bool {
    worker.life == Life::Works && Pc::Lock <= worker.pc && worker.pc <= Pc::Decide
}

/// The cutover is aborted: opened where it was fenced, given up, and reverted.
pub fn abort(state: &mut State, number: usize) -> bool {
    let worker = &mut state.workers[number];
    worker.pc = if worker.pc > Pc::Fence { Pc::AbortReopen } else { Pc::AbortRelease };
    true
}

/// `cutover::watch`, one side at a time: restores the state that a shard has lost.
pub fn tell_again(split: &Split, state: &mut State) -> bool {
    // This is work of the same worker as all other work, including that of the reverse split.
    if !matches!(state.workers[0].pc, Pc::Idle | Pc::Ready) && split.keeps(Rule::OneWorkerForBoth) {
        return false;
    }
    let master = &mut state.masters[0];
    let is_told = master.step == CutoverStep::Moved && !master.finished && master.goal != Goal::Finish;
    let leg = match master.phase {
        Phase::Completed if master.leg > 0 && !split.keeps(Rule::WatchEndsWithDecision) => {
            Some(master.leg - 1)
        }
        Phase::Completed => is_told.then_some(master.leg),
        // Windows are copied back. The first cutover's state is watched as well, until the reverse cutover.
        Phase::Tailing => {
            let watches = master.step == CutoverStep::None && split.keeps(Rule::WatchedUntilReversed);
            (master.leg > 0 && watches).then(|| master.leg - 1)
        }
        Phase::RolledBack => None,
    };
    let Some(leg) = leg.filter(|_| split.keeps(Rule::ToldAgain)) else { return false };
    let way = Master { leg, ..*master };
    let forgotten =
        state.places[way.source()].give != Give::Moved || state.places[way.target()].take != Take::Open;
    if !forgotten {
        return false;
    }
    (master.phase, master.step, master.leg) = (Phase::Completed, CutoverStep::Decided, leg);
    if state.workers[0].pc == Pc::Ready {
        state.workers[0] = Worker::idle(0);
    }
    true
}
