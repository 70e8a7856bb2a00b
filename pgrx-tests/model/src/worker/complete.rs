//! Work after a decision of another worker: src/split/cutover/settled.rs, and `complete` in recovery.rs.

use super::{At, cutover, take_over};
use crate::rules::Rule;
use crate::state::{CutoverStep, Give, Goal, NOTHING, Pc, Take};

/// `settled::complete`: opens the target without a step, if it has all rows.
pub fn settled(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    match at.me().pc {
        Pc::SettledTarget => joins(at, target, false, Pc::SettledSource),
        Pc::SettledSource => joins(at, source, true, Pc::SettledLook),
        Pc::SettledLook => look(at),
        Pc::SettledOpen => {
            if !cutover::opens_target(at) {
                return at.fails();
            }
            at.goes(Pc::SettledMove)
        }
        _ => {
            if !cutover::moves_source(at) {
                return at.fails();
            }
            at.goes(Pc::Record)
        }
    }
}

/// `settled::take`: earlier sessions are ended, and the generation stays the same.
fn joins(at: &mut At, place: usize, is_source: bool, next: Pc) -> bool {
    if take_over::adopts_way_back(at) {
        return true;
    }
    if !take_over::end_previous(at, place) {
        return false;
    }
    let (known, seen) = (at.state.places[place].generation, at.master().generation);
    if known > seen {
        return take_over::attach(at);
    }
    if is_source {
        (at.me().source, at.me().on_source) = (true, known)
    } else {
        (at.me().target, at.me().on_target) = (true, known)
    }
    at.me().generation = seen;
    at.goes(next)
}

fn look(at: &mut At) -> bool {
    if !(at.me().source && at.me().target) {
        return at.fails();
    }
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let is_borne_out = here.deciding != 0 || !at.keeps(Rule::FenceBorneOut);
    let is_shut = here.give == Give::Moved || here.give == Give::Fenced && is_borne_out;
    if !is_shut && at.keeps(Rule::FencedAgain) {
        return take_over::attach(at);
    }
    if there.take == Take::Open {
        return at.goes(Pc::SettledMove);
    }
    let is_noted = here.deciding != 0 || !at.keeps(Rule::NoteBorneOut);
    let agrees =
        here.announced == there.steps && there.seen_timeline != NOTHING || !at.keeps(Rule::CountersAgree);
    let is_whole = is_noted && agrees && !(here.purging && at.keeps(Rule::PurgingNoted))
        || !at.keeps(Rule::WholeBeforeOpening);
    if is_whole && there.take == Take::Closed {
        return at.goes(Pc::SettledOpen);
    }
    take_over::attach(at)
}

/// `recovery::complete`
pub fn work(at: &mut At) -> bool {
    if !(at.me().source && at.me().target) {
        return at.fails();
    }
    let source = at.source();
    match at.me().pc {
        Pc::Complete => begin(at),
        Pc::CompleteLock => cutover::takes_barrier(at, Pc::CompleteFence),
        Pc::CompleteFence => {
            if at.state.places[source].give == Give::Capture && !cutover::fences(at) {
                return at.fails();
            }
            at.goes(Pc::CompleteHeld)
        }
        Pc::CompleteHeld => {
            if at.state.places[source].barrier != Some(at.number as u8)
                && at.keeps(Rule::FenceAskedWhetherHeld)
            {
                return at.fails();
            }
            at.goes(Pc::CompleteRelease)
        }
        _ => {
            at.release();
            // From here on the worker knows that no writer is behind the fence.
            at.me().completes = true;
            at.goes(Pc::Complete)
        }
    }
}

fn begin(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    if there.take == Take::Left {
        // `take_up_finish`
        let master = at.master();
        (master.step, master.goal, master.purged) = (CutoverStep::Moved, Goal::Finish, true);
        return at.rests();
    }
    let is_known = at.me().completes || !at.keeps(Rule::FenceBorneOut);
    let is_doubtful = here.give == Give::Fenced && here.deciding == 0 && !is_known;
    if (here.give == Give::Capture || is_doubtful) && at.keeps(Rule::FencedAgain) {
        return at.goes(Pc::CompleteLock);
    }
    if there.take == Take::Open || !at.keeps(Rule::WholeBeforeOpening) {
        return at.goes(Pc::Open);
    }
    if here.purging && at.keeps(Rule::PurgingNoted) {
        return at.is_refused();
    }
    // `catch_up`: steps until one finds no changes.
    let Some(step) = super::step::look(at) else { return at.fails() };
    if step.window == 0 {
        return at.goes(Pc::Open);
    }
    at.me().completes = true;
    at.goes(Pc::StepSnapshot)
}
