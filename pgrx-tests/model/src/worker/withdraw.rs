//! The withdrawal of a decision that no shard has carried out: src/split/end/withdraw.rs.

use super::{At, take_over};
use crate::state::{CutoverStep, Give, Goal, Pc, Phase, Route, Take};

pub fn work(at: &mut At) -> bool {
    let (source, target) = (at.source(), at.target());
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let is_on_target = !matches!(there.take, Take::No | Take::Unused);
    match at.me().pc {
        Pc::WithdrawTarget if is_on_target => take_over::takes_over(at, target, false, Pc::WithdrawSource),
        Pc::WithdrawTarget => at.goes(Pc::WithdrawSource),
        Pc::WithdrawSource if here.give != Give::No => take_over::takes_over(at, source, true, Pc::Withdraw),
        Pc::WithdrawSource if here.redirect => take_over::is_not_installed(at),
        Pc::WithdrawSource => at.goes(Pc::Withdraw),
        _ => {
            // Another worker has ended a session that is gone, and may do anything with its side.
            if is_on_target && !at.me().target || here.give != Give::No && !at.me().source {
                return at.fails();
            }
            let is_carried_out = matches!(there.take, Take::Open | Take::Left) || here.give == Give::Moved;
            if is_carried_out {
                at.master().goal = Goal::Cutover;
                return at.rests();
            }
            if !at.may_on_master() {
                return at.fails();
            }
            let master = at.master();
            (master.phase, master.step, master.goal) = (Phase::Tailing, CutoverStep::None, Goal::RollBack);
            master.route = Route::To(master.source() as u8);
            at.rests()
        }
    }
}
