//! States that differ in numbers alone, of which only the order counts, are one state.

use crate::state::{Back, CutoverStep, Goal, Life, Master, Phase, Route, State, Worker};

/// No old primary and no copy lives.
pub const NO_MASTER: Master = Master {
    run: 0,
    generation: 0,
    phase: Phase::Tailing,
    step: CutoverStep::None,
    goal: Goal::Tail,
    route: Route::Waits,
    purged: false,
    finished: false,
    failed: false,
    leg: 0,
};

pub fn normalize(state: &mut State) {
    if !state.workers.iter().any(|worker| worker.life != Life::Gone && worker.master == 1) {
        state.masters[1] = Master { run: state.masters[1].run, ..NO_MASTER };
    }
    if state.setbacks == 0
        || state.places.iter().any(|place| place.purging) && matches!(state.back, Back::Place(..))
    {
        state.back = Back::Nothing;
    }
    renumber(state, generations);
    renumber(state, steps);
}

/// Numbers that follow each other go on doing so; wider gaps become gaps of two.
fn renumber<const N: usize>(state: &mut State, of: fn(&mut State) -> [Option<&mut u8>; N]) {
    let mut known = [0; N];
    let mut count = 1;
    for number in of(state).into_iter().flatten() {
        if !known[..count].contains(number) {
            known[count] = *number;
            count += 1;
        }
    }
    known[..count].sort_unstable();
    let mut new = [0; N];
    for at in 1..count {
        new[at] = new[at - 1] + (known[at] - known[at - 1]).min(2);
    }
    for number in of(state).into_iter().flatten() {
        if let Some(at) = known[..count].iter().position(|one| one == number) {
            *number = new[at];
        }
    }
}

fn generations(state: &mut State) -> [Option<&mut u8>; 13] {
    let [one, other] = &mut state.masters;
    let [here, there] = &mut state.places;
    let [first, second] = &mut state.workers;
    let back = match &mut state.back {
        Back::Nothing => None,
        Back::Place(_, _, place) => Some(&mut place.generation),
        Back::Master(master) => Some(&mut master.generation),
    };
    let [a, b, c] = of_worker(first);
    let [d, e, f] = of_worker(second);
    let own =
        [&mut one.generation, &mut other.generation, &mut here.generation, &mut there.generation].map(Some);
    let [g, h, i, j] = own;
    [a, b, c, d, e, f, g, h, i, j, back, None, None]
}

fn of_worker(worker: &mut Worker) -> [Option<&mut u8>; 3] {
    [&mut worker.generation, &mut worker.on_source, &mut worker.on_target].map(Some)
}

fn steps(state: &mut State) -> [Option<&mut u8>; 13] {
    let [here, there] = &mut state.places;
    let [first, second] = &mut state.workers;
    let [a, b, c] = [&mut here.consumed, &mut here.announced, &mut here.steps].map(Some);
    let [d, e, f] = [&mut there.consumed, &mut there.announced, &mut there.steps].map(Some);
    let [g, h, i] = match &mut state.back {
        Back::Place(_, _, place) => [&mut place.consumed, &mut place.announced, &mut place.steps].map(Some),
        _ => [None, None, None],
    };
    [a, b, c, d, e, f, g, h, i, Some(&mut first.step.number), Some(&mut second.step.number), None, None]
}
