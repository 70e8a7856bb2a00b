//! The properties that must hold in every state.

use crate::model::Split;
use crate::state::{CutoverStep, Give, Route, State, Take, rows_of};
use stateright::Property;

pub const LOST: &str = "no acknowledged write is lost";
pub const TWO: &str = "no two places take a write of one key";
pub const DIFFERS: &str = "what no client has changed since is the same on both sides";

pub fn all() -> Vec<Property<Split>> {
    vec![
        Property::always(LOST, |_, state: &State| !is_lost(state)),
        Property::always(TWO, |_, state: &State| !are_two(state)),
        Property::always(DIFFERS, |split, state: &State| {
            state.setbacks < split.bounds.setbacks || !differs(state)
        }),
    ]
}

fn is_lost(state: &State) -> bool {
    let owner = &state.places[usize::from(state.owner)];
    let wanted = state.acked & !state.stray;
    let somewhere = state.places[0].rows | state.places[1].rows;
    owner.accepts() && wanted & !owner.rows != 0 || state.stray & !somewhere != 0
}

fn are_two(state: &State) -> bool {
    state.misplaced || !state.excused && state.places.iter().all(|place| place.accepts())
}

/// Whether a row differs although the source is frozen. Verification and finish rely on that.
fn differs(state: &State) -> bool {
    let master = &state.masters[0];
    let (source, target) = (state.places[master.source()], state.places[master.target()]);
    let is_over = source.give == Give::Moved && target.take == Take::Open && !source.purging;
    let differing = rows_of(source.rows ^ target.rows) & !target.changed;
    is_over && master.step == CutoverStep::Moved && differing != 0
}

/// Whether one place takes writes and the master routes to it. Alternatively the operator is told to restore
/// a target that was set back after finish began to delete on the source.
pub fn is_served(state: &State) -> bool {
    let master = &state.masters[0];
    let (source, target) = (state.places[master.source()], state.places[master.target()]);
    if master.failed && source.purging && target.take == Take::Closed {
        return true;
    }
    let accepts = [state.places[0].accepts(), state.places[1].accepts()];
    match accepts {
        [true, false] => master.route == Route::To(0),
        [false, true] => master.route == Route::To(1),
        _ => false,
    }
}
