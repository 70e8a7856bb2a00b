//! Finish: src/split/end/finish.rs and proof.rs.

use super::{At, take_over};
use crate::rules::Rule;
use crate::state::{CutoverStep, Give, Goal, NOTHING, Pc, Take, WRITERS, rows_of};

pub fn work(at: &mut At) -> bool {
    match at.me().pc {
        Pc::FinishTold => told(at),
        Pc::FinishPurging => {
            if !at.may_on_source() {
                return at.fails();
            }
            let source = at.source();
            let ends_way_back = at.keeps(Rule::PurgingEndsTheWayBack);
            let notes = at.keeps(Rule::PurgingNoted);
            let here = &mut at.state.places[source];
            here.purging = notes;
            if ends_way_back && here.take == Take::Closed {
                here.seen_timeline = NOTHING;
            }
            at.commits_on(source);
            at.goes(Pc::FinishRows)
        }
        Pc::FinishRows => prove(at),
        Pc::FinishPurged => {
            at.master().purged = true;
            at.goes(Pc::FinishStill)
        }
        Pc::FinishStill => still(at),
        _ => leave(at),
    }
}

/// `require_told` and `require_nothing_stray`
fn told(at: &mut At) -> bool {
    if !(at.me().source && at.me().target) {
        return at.fails();
    }
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let is_told = here.give == Give::Moved && there.take == Take::Open;
    if !is_told && at.keeps(Rule::ToldBeforeFinish) {
        at.master().step = CutoverStep::Decided;
        return at.rests();
    }
    // If a shard has a side of the reverse split again, it would continue to refuse clients.
    if there.give != Give::No && at.keeps(Rule::FinishTakesTheWayBackAway) {
        if !at.may_on_target() {
            return at.fails();
        }
        at.state.places[target].give = Give::No;
        at.commits_on(target);
        return at.goes(Pc::FinishTold);
    }
    // `source::stray_changes`: a transaction number that was assigned again counts as new.
    let was_set_back =
        there.steps > here.announced || there.steps < here.consumed || there.seen_timeline != here.timeline;
    let is_new = |xid: &u8| *xid != 0 && (was_set_back || there.seen & 1 << xid == 0);
    if here.queue.iter().any(is_new) && at.keeps(Rule::StrayStopsFinish) {
        at.master().goal = Goal::Cutover;
        return at.rests();
    }
    at.goes(Pc::FinishPurging)
}

/// `Prover::prove`, and the batch's commit.
fn prove(at: &mut At) -> bool {
    if !at.me().target || !at.may_on_source() {
        return at.fails();
    }
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let differs = rows_of(here.rows & !there.rows) & !there.changed;
    if differs != 0 && at.keeps(Rule::RowsProven) {
        at.master().goal = Goal::Cutover;
        return at.rests();
    }
    at.state.places[source].rows = 0;
    at.commits_on(source);
    at.goes(Pc::FinishPurged)
}

/// `require_still_open` and `require_still_moved`
fn still(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    if here.give != Give::No && !at.me().source {
        return take_over::takes_over(at, source, true, Pc::FinishStill);
    }
    if there.take != Take::No && !at.me().target {
        return take_over::takes_over(at, target, false, Pc::FinishStill);
    }
    if there.take == Take::Closed {
        return at.is_refused();
    }
    if !matches!(here.give, Give::Moved | Give::No) {
        let master = at.master();
        (master.step, master.purged) = (CutoverStep::Decided, false);
        return at.rests();
    }
    at.goes(Pc::FinishLeave)
}

fn leave(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    let is_first = at.keeps(Rule::RedirectFirst);
    // Each statement needs its session, if there is something left to do.
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let is_cut_off = match at.me().pc {
        Pc::FinishLeave | Pc::FinishTarget => there.take != Take::No && !at.me().target,
        Pc::FinishRedirect | Pc::FinishSource => here.give != Give::No && !at.me().source,
        _ => false,
    };
    if is_cut_off {
        return at.fails();
    }
    match at.me().pc {
        Pc::FinishLeave => {
            let there = &mut at.state.places[target];
            if there.take == Take::Open {
                (there.take, there.give) = (Take::Left, Give::No);
            }
            at.goes(if is_first { Pc::FinishRedirect } else { Pc::FinishSource })
        }
        Pc::FinishRedirect => {
            at.state.places[source].redirect = true;
            at.goes(if is_first { Pc::FinishSource } else { Pc::FinishTarget })
        }
        Pc::FinishSource => {
            let here = &mut at.state.places[source];
            (here.give, here.take, here.queue) = (Give::No, Take::No, [0; WRITERS]);
            at.goes(if is_first { Pc::FinishTarget } else { Pc::FinishRedirect })
        }
        Pc::FinishTarget => {
            at.state.places[target].take = Take::No;
            at.goes(Pc::FinishEnd)
        }
        _ => {
            let is_ended = at.state.places[source].redirect && at.state.places[target].take == Take::No;
            if !is_ended || !at.may_on_master() {
                return at.fails();
            }
            at.master().finished = true;
            at.rests()
        }
    }
}
