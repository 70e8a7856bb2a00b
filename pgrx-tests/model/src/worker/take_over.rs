//! How a worker takes over its shards, and what it settles first: src/split/run/take_over.rs and
//! src/split/cutover/recovery.rs.

use super::At;
use crate::rules::Rule;
use crate::state::{CutoverStep, Give, Goal, Life, NOTHING, Pc, Phase, Route, Take, Worker};

/// Does the next work of the plan: src/split/lifecycle/work.rs.
pub fn begin(at: &mut At) -> bool {
    let master = *at.master();
    if master.failed || master.finished && master.phase == Phase::Completed {
        return false;
    }
    at.me().leg = master.leg;
    let in_doubt = master.is_before_decision() && master.step != CutoverStep::None;
    if in_doubt && at.keeps(Rule::LeftCutoverReverted) {
        return takes(at, Pc::RevertTake);
    }
    match (master.phase, master.goal) {
        (Phase::Tailing, Goal::RollBack) => takes(at, Pc::UndoLook),
        (Phase::Tailing, Goal::Finish) => takes(at, Pc::TakeTarget),
        (Phase::Tailing, Goal::Cutover | Goal::Tail) => takes(at, Pc::TakeTarget),
        (Phase::Completed, Goal::RollBack) => takes(at, Pc::WithdrawTarget),
        (Phase::Completed, _) if master.step != CutoverStep::Moved => at.goes(Pc::SettledTarget),
        (Phase::Completed, Goal::Finish) if master.purged => takes(at, Pc::FinishStill),
        (Phase::Completed, Goal::Finish) => takes(at, Pc::TakeTarget),
        _ => false,
    }
}

/// `record::take`: the worker gets the next generation.
fn takes(at: &mut At, pc: Pc) -> bool {
    at.master().generation += 1;
    let generation = at.master().generation;
    let me = at.me();
    (me.generation, me.on_source, me.on_target) = (generation, generation, generation);
    at.goes(pc)
}

/// `epoch::take_over` of the target or the source. False: a transaction of another session has the row.
pub fn takes_over(at: &mut At, place: usize, is_source: bool, next: Pc) -> bool {
    if adopts_way_back(at) {
        return true;
    }
    if !is_source {
        install_way_back(at, place);
    }
    let here = at.state.places[place];
    let is_there =
        if is_source { here.give != Give::No } else { !matches!(here.take, Take::No | Take::Unused) };
    if !is_there && at.keeps(Rule::TargetGuarded) {
        return is_not_installed(at);
    }
    if !end_previous(at, place) {
        return false;
    }
    let generation = at.me().generation;
    let here = &mut at.state.places[place];
    if here.generation >= generation {
        let known = here.generation;
        if at.keeps(Rule::GenerationOnShards) {
            // `record::catch_up_generation`
            if at.master().generation == generation {
                at.master().generation = known;
            }
            return at.rests();
        }
    }
    at.state.places[place].generation = generation;
    has_session(at, is_source);
    at.goes(next)
}

/// Reverse: the old source was opened by a reverse split that this master has lost completely. The master
/// adopts that decision as well. False: that is not the case.
pub fn adopts_way_back(at: &mut At) -> bool {
    let (source, leg) = (at.source(), at.me().leg);
    let is_known = leg > 0 || !at.split.has_way_back(0) || !at.keeps(Rule::WayBackLookedFor);
    if is_known || at.state.places[source].take != Take::Open || !at.may_on_master() {
        return false;
    }
    let master = at.master();
    (master.leg, master.goal) = (1, Goal::Cutover);
    decide(at);
    at.rests()
}

/// Reverse: the old source has lost the reverse split, and knows that its keys have left. The side is
/// installed again, with nothing copied.
fn install_way_back(at: &mut At, place: usize) {
    let is_way_back = at.me().leg > 0 && at.keeps(Rule::WayBackInstalledAgain);
    let here = &mut at.state.places[place];
    if is_way_back && here.take == Take::No && matches!(here.give, Give::Fenced | Give::Moved) {
        (here.give, here.take, here.steps, here.seen_timeline) = (Give::Moved, Take::Closed, 0, NOTHING);
    }
}

/// `Worker::install_again`: the source's redirect knows a decision and a finish that this master has lost.
pub fn is_not_installed(at: &mut At) -> bool {
    let source = at.source();
    if !at.state.places[source].redirect {
        return at.is_refused();
    }
    if !at.may_on_master() {
        return at.fails();
    }
    decide(at);
    let master = at.master();
    (master.step, master.goal, master.purged) = (CutoverStep::Moved, Goal::Finish, true);
    at.rests()
}

fn has_session(at: &mut At, is_source: bool) {
    if is_source { at.me().source = true } else { at.me().target = true }
}

/// `epoch::end_previous`. False: without that rule, another worker's transaction, which has the row of its
/// generation, must end first.
pub fn end_previous(at: &mut At, place: usize) -> bool {
    let ends = at.keeps(Rule::SessionsEnded);
    let locks = at.keeps(Rule::GenerationOnShards);
    let other = &mut at.state.workers[1 - at.number];
    if other.life == Life::Gone {
        return true;
    }
    let is_source = other.source_place() == place;
    if !ends {
        let holds = matches!(other.pc, Pc::StepAnnounce | Pc::StepCommit | Pc::Announce | Pc::Commit);
        return !(holds && other.target && !is_source && locks);
    }
    if is_source {
        other.source = false;
    } else {
        other.target = false;
    }
    if other.life == Life::Late && !other.source && !other.target {
        *other = Worker::GONE;
    }
    if is_source {
        at.state.places[place].barrier = None;
    }
    true
}

/// `Engine::attach` and `recovery::settle`.
pub fn work(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    match at.me().pc {
        Pc::TakeTarget => takes_over(at, target, false, Pc::TakeSource),
        Pc::TakeSource => takes_over(at, source, true, Pc::Settle),
        Pc::Settle => settle(at),
        Pc::SettleOpen => {
            if !opens_source(at) {
                return at.fails();
            }
            at.goes(Pc::SettleRoutes)
        }
        Pc::SettleRoutes => {
            reopen_routes(at);
            at.goes(Pc::Ready)
        }
        _ => adopt(at),
    }
}

fn settle(at: &mut At) -> bool {
    if !(at.me().source && at.me().target) {
        return at.fails();
    }
    if adopts_way_back(at) {
        return true;
    }
    let master = *at.master();
    if master.phase == Phase::Completed {
        let next = if master.goal == Goal::Finish && master.step == CutoverStep::Moved {
            Pc::FinishTold
        } else {
            Pc::Complete
        };
        return at.goes(next);
    }
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    // `decision::lost`
    let is_open = matches!(there.take, Take::Open | Take::Left);
    let bears_out = here.give == Give::Moved || here.give == Give::Fenced && here.deciding != 0 && is_open;
    if bears_out && at.keeps(Rule::LostDecisionAdopted) {
        return at.goes(Pc::Adopt);
    }
    if is_open && at.keeps(Rule::LostDecisionAdopted) {
        return at.is_refused();
    }
    if here.give == Give::Fenced || master.step != CutoverStep::None {
        return at.goes(Pc::SettleOpen);
    }
    at.goes(Pc::Ready)
}

/// `source::reopen`: in one commit with the removal of the note of a decision.
pub fn opens_source(at: &mut At) -> bool {
    if !at.may_on_source() {
        return false;
    }
    let source = at.source();
    let forgets = at.keeps(Rule::NoteGoesWithReopening);
    let here = &mut at.state.places[source];
    if here.give == Give::Fenced {
        here.give = Give::Capture;
    }
    if forgets {
        here.deciding = 0;
    }
    at.commits_on(source);
    true
}

/// `recovery::reopen_routes`
pub fn reopen_routes(at: &mut At) {
    let master = at.master();
    if master.is_before_decision() && master.step != CutoverStep::None {
        master.step = CutoverStep::None;
        master.route = Route::To(master.source() as u8);
    }
}

/// `recovery::adopt`: the decision is made again.
fn adopt(at: &mut At) -> bool {
    if !at.may_on_master() {
        return at.fails();
    }
    decide(at);
    at.goes(Pc::Complete)
}

/// `write_decision`, once it may.
pub fn decide(at: &mut At) {
    let master = at.master();
    master.phase = Phase::Completed;
    master.step = CutoverStep::Decided;
    master.route = Route::To(master.target() as u8);
    if master.goal == Goal::RollBack {
        // A decision is completed, whatever was requested.
        master.goal = Goal::Cutover;
    }
}

/// `recovery::revert`: with the source and the master alone.
pub fn revert(at: &mut At) -> bool {
    let source = at.source();
    let is_there = at.state.places[source].give != Give::No;
    match at.me().pc {
        // The source was restored to a time before the split, or is done with it, so there is no fence.
        Pc::RevertTake if !is_there => at.goes(Pc::RevertRoutes),
        Pc::RevertTake => takes_over(at, source, true, Pc::RevertOpen),
        Pc::RevertOpen => {
            let here = at.state.places[source];
            let run = at.master().run;
            let is_forgotten = here.deciding != 0 && (here.deciding != run && at.keeps(Rule::RunCompared));
            if here.give == Give::Moved || is_forgotten {
                // The target is asked.
                return begin_again_attached(at);
            }
            if !opens_source(at) {
                return at.fails();
            }
            at.goes(Pc::RevertRoutes)
        }
        _ => {
            reopen_routes(at);
            at.rests()
        }
    }
}

fn begin_again_attached(at: &mut At) -> bool {
    let me = at.me();
    (me.source, me.target) = (false, false);
    takes(at, Pc::TakeTarget)
}

/// Takes the plan once more, with both sides.
pub fn attach(at: &mut At) -> bool {
    begin_again_attached(at)
}
