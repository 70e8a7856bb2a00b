//! Writers with any route: each goes to any place at any time. A refused writer tries again.

use crate::model::{Act, Split};
use crate::rules::Rule;
use crate::state::{Give, Place, State, Take, WRITERS, Writer, rows_of};

pub fn actions(split: &Split, state: &State, acts: &mut Vec<Act>) {
    for number in 0..split.bounds.writers as u8 {
        match state.writers[usize::from(number)] {
            Writer::Ready => {
                for place in 0..2 {
                    if has_begun_apart(split, number) {
                        acts.push(Act::Begins(number, place));
                    }
                    acts.push(Act::Writes(number, place));
                }
            }
            Writer::Began { place, .. } => acts.push(Act::Writes(number, place)),
            Writer::Wrote { .. } => acts.push(Act::Commits(number)),
            Writer::Done => {}
        }
    }
}

/// Whether its snapshot is older than its lock.
fn has_begun_apart(split: &Split, number: u8) -> bool {
    is_above_read_committed(split, number) || !split.keeps(Rule::StateReadBehindLock)
}

fn is_above_read_committed(split: &Split, number: u8) -> bool {
    split.bounds.old_snapshots && usize::from(number) + 1 == split.bounds.writers
}

pub fn happens(split: &Split, state: &mut State, act: Act) -> bool {
    match act {
        Act::Begins(number, place) => {
            let Place { give, take, .. } = state.places[usize::from(place)];
            state.writers[usize::from(number)] = Writer::Began { place, give, take };
            true
        }
        Act::Writes(number, place) => write(split, state, number, place),
        Act::Commits(number) => commit(state, number),
        _ => false,
    }
}

/// The trigger: barrier, state, entry. A writer that waits for the barrier or for a row has not written yet.
fn write(split: &Split, state: &mut State, number: u8, place: u8) -> bool {
    let who = usize::from(number);
    let here = &mut state.places[usize::from(place)];
    let bit = 1 << number;
    let has_row = state.writers.iter().enumerate().any(|(other, writer)| {
        matches!(writer, Writer::Wrote { place: at, .. } if *at == place)
            && rows_of(1 << other) == rows_of(bit)
    });
    // From its opening on, a target has a barrier if there is a reverse split.
    let barrier = here.has_barrier() && (split.keeps(Rule::BarrierFromOpening) || place == 0);
    if has_row || barrier && here.barrier.is_some() || here.next_xid > 7 {
        return false;
    }
    let mut sees = *here;
    if let Writer::Began { give, take, .. } = state.writers[who] {
        let is_old = (give, take) != (here.give, here.take);
        let is_above = is_above_read_committed(split, number);
        if is_old && is_above && split.keeps(Rule::OldSnapshotRefused) {
            state.writers[who] = Writer::Ready;
            return true;
        }
        (sees.give, sees.take) = (give, take);
    }
    if !sees.accepts() || sees.give == Give::No && here.redirect {
        state.writers[who] = Writer::Ready;
        return true;
    }
    let xid = here.next_xid;
    here.next_xid += 1;
    let captured = sees.give == Give::Capture;
    state.writers[who] = Writer::Wrote { place, xid, captured, barrier };
    true
}

fn commit(state: &mut State, number: u8) -> bool {
    let Writer::Wrote { place, xid, captured, .. } = state.writers[usize::from(number)] else { return false };
    let here = &mut state.places[usize::from(place)];
    let bit = 1 << number;
    here.rows |= bit;
    if captured {
        here.queue[usize::from(number)] = xid;
    }
    if here.take == Take::Open {
        here.changed |= rows_of(bit);
    }
    state.writers[usize::from(number)] = Writer::Done;
    state.acked |= bit;
    state.home = (state.home & !bit) | (bit * place);
    if state.owner != place {
        if state.excused {
            state.stray |= bit;
        } else {
            state.misplaced = true;
        }
    }
    true
}

/// Returns the transactions that are open on a place, as bits of their numbers.
pub fn open(state: &State, place: usize) -> u8 {
    state.writers.iter().fold(0, |open, writer| match writer {
        Writer::Wrote { place: at, xid, .. } if usize::from(*at) == place => open | 1 << xid,
        _ => open,
    })
}

/// Whether a writer holds the barrier of a place in shared mode.
pub fn hold_barrier(state: &State, place: usize) -> bool {
    let holds = |writer: &Writer| matches!(writer, Writer::Wrote { place: at, barrier: true, .. } if usize::from(*at) == place);
    state.writers.iter().any(holds)
}

/// The server has restarted, so everything that was open is gone.
pub fn end_all(state: &mut State, place: usize) {
    for writer in state.writers.iter_mut().take(WRITERS) {
        match writer {
            Writer::Began { place: at, .. } | Writer::Wrote { place: at, .. }
                if usize::from(*at) == place =>
            {
                *writer = Writer::Ready;
            }
            _ => {}
        }
    }
}
