//! Rollback: src/split/end/rollback.rs.

use super::{At, take_over};
use crate::rules::Rule;
use crate::state::{Give, Goal, Pc, Phase, Place, Take, WRITERS};

pub fn work(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    match at.me().pc {
        Pc::UndoLook => look(at),
        Pc::UndoLookBoth => {
            // A session that is gone by now was ended by another worker that has taken the side over.
            let has_target = at.me().target;
            let wants_target = !matches!(there.take, Take::Unused | Take::No);
            if wants_target && !has_target {
                return at.fails();
            }
            look(at)
        }
        Pc::UndoTake if here.give == Give::No => at.goes(Pc::UndoRoutes),
        Pc::UndoTake => {
            if at.me().source {
                at.goes(Pc::UndoOpen)
            } else {
                take_over::takes_over(at, source, true, Pc::UndoOpen)
            }
        }
        Pc::UndoOpen => {
            if here.give == Give::Moved {
                return is_decided(at);
            }
            if !take_over::opens_source(at) {
                return at.fails();
            }
            at.goes(Pc::UndoRoutes)
        }
        Pc::UndoRoutes => {
            take_over::reopen_routes(at);
            at.goes(Pc::UndoSource)
        }
        Pc::UndoSource => {
            if !at.me().source && here.give != Give::No {
                return at.fails();
            }
            drops_source(&mut at.state.places[source]);
            at.commits_on(source);
            let next = if at.keeps(Rule::RollbackTakesFirst) { Pc::UndoRows } else { Pc::UndoTakeTarget };
            if !at.keeps(Rule::GuardOutlivesRows) {
                at.state.places[target].take = Take::No;
            }
            let is_taken = at.me().target;
            at.goes(if is_taken { next } else { Pc::UndoTakeTarget })
        }
        Pc::UndoTakeTarget if matches!(there.take, Take::Unused | Take::No) => at.goes(Pc::UndoEnd),
        Pc::UndoTakeTarget => take_over::takes_over(at, target, false, Pc::UndoRows),
        Pc::UndoRows => {
            if !at.may_on_target() {
                return at.fails();
            }
            at.state.places[target].rows = 0;
            at.goes(Pc::UndoTarget)
        }
        Pc::UndoTarget => {
            if !at.me().target {
                return at.fails();
            }
            at.state.places[target].take = Take::Unused;
            at.goes(Pc::UndoEnd)
        }
        _ => {
            if here.give != Give::No || !matches!(there.take, Take::Unused | Take::No) || !at.may_on_master()
            {
                return at.fails();
            }
            at.master().phase = Phase::RolledBack;
            at.rests()
        }
    }
}

/// A decision that a shard knows is kept.
fn look(at: &mut At) -> bool {
    let target = at.target();
    let there = at.state.places[target];
    let source = at.source();
    if at.state.places[source].redirect && at.keeps(Rule::RollbackAdopts) {
        return take_over::is_not_installed(at);
    }
    if at.keeps(Rule::RollbackTakesFirst) {
        if !at.me().target && !matches!(there.take, Take::Unused | Take::No) {
            return take_over::takes_over(at, target, false, Pc::UndoLookBoth);
        }
        if !at.me().source && at.state.places[source].give != Give::No {
            return take_over::takes_over(at, source, true, Pc::UndoLookBoth);
        }
    }
    if matches!(there.take, Take::Open | Take::Left) {
        return is_decided(at);
    }
    at.goes(Pc::UndoTake)
}

/// The decision is adopted, as by any worker that attaches to both sides.
fn is_decided(at: &mut At) -> bool {
    if !at.keeps(Rule::RollbackAdopts) {
        return at.is_refused();
    }
    at.master().goal = Goal::Tail;
    at.rests()
}

fn drops_source(here: &mut Place) {
    (here.give, here.queue, here.deciding, here.barrier) = (Give::No, [0; WRITERS], 0, None);
}
