//! The cutover: src/split/cutover/mod.rs and fence.rs.

use super::{At, step, take_over};
use crate::rules::Rule;
use crate::state::{CutoverStep, Give, Goal, NOTHING, Pc, Phase, Place, Route, Step, Take};
use crate::writers;

/// Both sides are attached, and nothing is left to settle.
pub fn ready(at: &mut At) -> bool {
    if !(at.me().source && at.me().target) {
        return at.fails();
    }
    match (at.master().phase, at.master().goal) {
        (Phase::Tailing, Goal::Cutover) => at.goes(Pc::Disable),
        (Phase::Tailing, Goal::RollBack) => at.rests(),
        (Phase::Tailing, Goal::Finish) => ends_way_back(at),
        (Phase::Completed, _) => at.rests(),
        _ => false,
    }
}

/// The reverse split ends. From here on finish works as if there had been none.
fn ends_way_back(at: &mut At) -> bool {
    if !at.may_on_master() {
        return at.fails();
    }
    let master = at.master();
    (master.leg, master.phase, master.step) = (master.leg - 1, Phase::Completed, CutoverStep::Moved);
    at.rests()
}

/// Steps 1 to 4.
pub fn before(at: &mut At) -> bool {
    let source = at.source();
    match at.me().pc {
        Pc::Disable => {
            let asked = at.master().goal == Goal::Cutover && at.master().is_before_decision();
            if !asked || !at.may_on_master() {
                return at.rests();
            }
            at.master().step = CutoverStep::Disabled;
            at.master().route = Route::Waits;
            at.goes(Pc::Lock)
        }
        Pc::Lock => takes_barrier(at, Pc::Fence),
        Pc::Fence => {
            if at.keeps(Rule::SourceFenced) && !fences(at) {
                return at.fails();
            }
            at.goes(Pc::Held)
        }
        Pc::Held => {
            if at.keeps(Rule::FenceAskedWhetherHeld)
                && at.state.places[source].barrier != Some(at.number as u8)
            {
                return at.goes(Pc::AbortReopen);
            }
            at.goes(Pc::Snapshot)
        }
        Pc::Snapshot => last_snapshot(at),
        Pc::Announce => step::announce(at, true, Pc::Commit, Pc::Consume),
        Pc::Commit => step::commit(at, Pc::Announce, Pc::Progress, Pc::Consume),
        _ => step::late_rows(at, Pc::Consume),
    }
}

/// `fence::take`: afterwards no writer is in a transaction. False: it waits.
pub fn takes_barrier(at: &mut At, next: Pc) -> bool {
    let source = at.source();
    if !at.me().source {
        return at.fails();
    }
    if at.keeps(Rule::FenceWaitsForWriters) && writers::hold_barrier(at.state, source) {
        return false;
    }
    at.state.places[source].barrier = Some(at.number as u8);
    at.goes(next)
}

/// `FENCE`, in another session than the one that has the barrier.
pub fn fences(at: &mut At) -> bool {
    if !at.may_on_source() {
        return false;
    }
    let source = at.source();
    if at.state.places[source].give != Give::Capture {
        return false;
    }
    at.state.places[source].give = Give::Fenced;
    at.commits_on(source);
    true
}

/// S, which sees every write that there will ever be.
fn last_snapshot(at: &mut At) -> bool {
    if !at.keeps(Rule::LastWindowBehindFence) {
        // The cutover relies on the rows that ordinary steps have copied.
        return at.goes(Pc::Decide);
    }
    let Some(step) = step::look(at) else { return at.fails() };
    if step.window == u8::MAX {
        // The copy has to start again, which is not possible in a cutover.
        return at.goes(Pc::AbortReopen);
    }
    if step.window == 0 && !at.keeps(Rule::LastStepCounts) {
        let (source, run) = (at.source(), at.master().run);
        if !at.may_on_source() {
            return at.fails();
        }
        at.state.places[source].deciding = run;
        return at.goes(Pc::Decide);
    }
    at.me().step = step;
    let first = step::first_of(at, Pc::Announce, Pc::Commit, Pc::Consume);
    at.goes(first)
}

/// The part after the last window.
pub fn behind(at: &mut At) -> bool {
    match at.me().pc {
        Pc::Consume => consume(at),
        Pc::Decide => decide(at),
        Pc::Open => {
            if !opens_target(at) {
                return at.fails();
            }
            if !at.keeps(Rule::BegunAfterMoved) && at.master().phase == Phase::Completed {
                // The master begins the reverse split, and another worker has to tell the source.
                return records_moved(at);
            }
            let is_decided = at.master().phase == Phase::Completed;
            at.goes(if is_decided { Pc::Move } else { Pc::Decide })
        }
        Pc::Move => {
            if !moves_source(at) {
                return at.fails();
            }
            at.goes(Pc::Release)
        }
        Pc::Release => {
            at.release();
            at.goes(Pc::Record)
        }
        _ => records_moved(at),
    }
}

fn consume(at: &mut At) -> bool {
    let is_consumed = at.me().step.is_consumed && !at.keeps(Rule::ConsumedAfterCommit);
    if is_consumed && at.me().source {
        return at.goes(Pc::Decide);
    }
    // `check_queue_is_empty` asks the source, even if nothing leaves its queue.
    if !at.me().source || at.me().step.window != 0 && !step::consumes(at) {
        return at.fails();
    }
    if !at.keeps(Rule::ConsumedAfterCommit) {
        at.me().step.is_consumed = true;
        return at.goes(Pc::Announce);
    }
    at.me().step = Step::default();
    let next = if at.keeps(Rule::OpenAfterDecision) { Pc::Decide } else { Pc::Open };
    at.goes(next)
}

/// `decide_by`: one commit on the master.
fn decide(at: &mut At) -> bool {
    let asked = at.master().goal == Goal::Cutover && at.master().is_before_decision();
    if !asked || !at.may_on_master() {
        return at.goes(Pc::AbortReopen);
    }
    take_over::decide(at);
    let next = if at.keeps(Rule::OpenAfterDecision) { Pc::Open } else { Pc::Move };
    at.goes(next)
}

/// `open_side`. If there is a reverse split, its capture begins in the same commit, and the refusals of the
/// old side of this place end.
pub fn opens_target(at: &mut At) -> bool {
    if !at.may_on_target() {
        return false;
    }
    let (target, leg) = (at.target(), at.master().leg);
    let captures = at.split.has_way_back(leg) && at.keeps(Rule::CaptureFromOpening);
    let releases = at.keeps(Rule::OldSideReleased);
    let there = &mut at.state.places[target];
    if matches!(there.take, Take::Closed | Take::No) {
        there.take = Take::Open;
        there.changed = 0;
        if captures {
            there.give = Give::Capture;
            there.queue = Default::default();
            there.deciding = 0;
            (there.consumed, there.announced) = (0, 0);
        } else if releases {
            there.give = Give::No;
        }
        at.state.owner = target as u8;
    }
    at.commits_on(target);
    true
}

/// `MOVE`. If there is a reverse split, its progress begins in the same commit. The rows here are those with
/// which the target was opened.
pub fn moves_source(at: &mut At) -> bool {
    if !at.may_on_source() {
        return false;
    }
    let (source, target, leg) = (at.source(), at.target(), at.master().leg);
    let goes_back = at.split.has_way_back(leg);
    let stays_shut = at.keeps(Rule::SourceStaysShut);
    let there = at.state.places[target];
    let here = &mut at.state.places[source];
    if here.give == Give::Fenced || !at.split.keeps(Rule::SourceFenced) {
        here.give = Give::Moved;
        if goes_back {
            here.take = Take::Closed;
            if !stays_shut {
                here.give = Give::No;
                here.take = Take::Open;
            }
            begin_way_back(at, source, &there);
        }
    }
    at.commits_on(source);
    true
}

/// No entry of the target's queue is older than the opening, so the first window is the whole queue. That
/// holds only if the rows here are those with which the target was opened. A source that has lost its fence
/// since then is copied again, from nothing.
fn begin_way_back(at: &mut At, source: usize, there: &Place) {
    let again = at.keeps(Rule::CopiedAgainAfterRetelling);
    let from_none = at.keeps(Rule::StepsFromNone);
    let here = &mut at.state.places[source];
    let is_whole = here.deciding != 0 && here.announced == there.steps && here.consumed <= there.steps;
    here.seen = 0;
    here.seen_timeline = if is_whole || !again { there.timeline } else { NOTHING };
    // A larger count shows that the target has dropped entries since.
    here.steps = if from_none { 0 } else { there.announced };
}

/// `record_moved`
fn records_moved(at: &mut At) -> bool {
    let leg = at.master().leg;
    let goes_back = at.split.has_way_back(leg);
    let ends = at.master().goal == Goal::Finish;
    let master = at.master();
    if master.phase == Phase::Completed {
        master.step = CutoverStep::Moved;
        if goes_back && !ends {
            let target = master.target();
            master.leg += 1;
            (master.phase, master.step, master.goal) = (Phase::Tailing, CutoverStep::None, Goal::Tail);
            if !at.keeps(Rule::CaptureFromOpening) {
                at.state.places[target].give = Give::Capture;
            }
        }
    }
    at.rests()
}

/// The end of an aborted cutover.
pub fn aborted(at: &mut At) -> bool {
    match at.me().pc {
        Pc::AbortReopen => {
            if !take_over::opens_source(at) {
                return at.fails();
            }
            at.goes(Pc::AbortRelease)
        }
        Pc::AbortRelease => {
            at.release();
            at.goes(Pc::GiveUp)
        }
        _ => {
            // `record::cutover_given_up`
            let master = at.master();
            if master.is_before_decision() && master.goal == Goal::Cutover {
                master.goal = Goal::Tail;
            }
            at.rests()
        }
    }
}
