//! Treats states as one that differ only in numbers whose order alone counts.

use crate::state::{Back, CutoverStep, Goal, Life, Master, Phase, Route, State, Worker};

/// There is no old primary and no copy.
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

/// Numbers that follow each other keep doing so, and wider gaps become gaps of two. This is done for each
/// state, and most have nothing to change, so the numbers are bits.
fn renumber<const N: usize>(state: &mut State, of: fn(&mut State) -> [Option<&mut u8>; N]) {
    let known = of(state).into_iter().flatten().fold(1_u128, |known, number| known | 1 << *number);
    let highest = known.ilog2();
    let missing = !known & ((1 << highest) - 1);
    if missing & (missing >> 1) == 0 {
        return;
    }
    let mut new = [0; u128::BITS as usize];
    let (mut before, mut last) = (0, 0);
    for number in (1..=highest).filter(|number| known & (1 << number) != 0) {
        last += (number - before).min(2) as u8;
        new[number as usize] = last;
        before = number;
    }
    for number in of(state).into_iter().flatten() {
        *number = new[usize::from(*number)];
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
