//! Faults: crashes, servers that are set back, and workers that end in the middle of something.

use crate::model::{Act, Split};
use crate::rules::Rule;
use crate::state::{Back, Cause, Give, Life, Master, Pc, Phase, Place, State, Take, Worker};
use crate::writers;

pub fn actions(split: &Split, state: &State, acts: &mut Vec<Act>) {
    if state.faults > 0 {
        acts.extend([Act::ShardCrashes(0), Act::ShardCrashes(1), Act::MasterCrashes]);
        acts.extend([Act::WorkerEnds { late: false }, Act::WorkerEnds { late: true }]);
        if !split.keeps(Rule::OneWorker) {
            acts.push(Act::SecondBegins);
        }
        if !split.keeps(Rule::MasterIdentity) {
            acts.push(Act::CopyBegins);
        }
    }
    if state.setbacks == 0 {
        return;
    }
    match state.back {
        Back::Nothing => {
            for place in 0..2 {
                if split.bounds.shards_set_back[usize::from(place)] {
                    acts.extend(split.bounds.causes.iter().map(|cause| Act::ShardFallsBehind(place, *cause)));
                }
            }
            if split.bounds.master_set_back {
                acts.push(Act::MasterFallsBehind);
            }
        }
        Back::Place(..) => acts.push(Act::ShardSetBack),
        Back::Master(_) => acts.extend([true, false].map(|old_lives| Act::MasterSetBack { old_lives })),
    }
}

pub fn happens(split: &Split, state: &mut State, act: Act) -> bool {
    match act {
        Act::ShardFallsBehind(place, cause) => falls_behind(state, place, cause),
        Act::MasterFallsBehind => {
            state.back = Back::Master(state.masters[0]);
            true
        }
        Act::ShardSetBack => shard_set_back(state),
        Act::MasterSetBack { old_lives } => master_set_back(state, old_lives),
        Act::Vanishes => vanishes(state),
        _ => {
            state.faults -= 1;
            crashes(split, state, act)
        }
    }
}

fn vanishes(state: &mut State) -> bool {
    let late = &mut state.workers[1];
    let is_late = late.life == Life::Late;
    if is_late {
        *late = Worker::GONE;
    }
    is_late
}

fn crashes(split: &Split, state: &mut State, act: Act) -> bool {
    match act {
        Act::ShardCrashes(place) => {
            shard_ends(state, usize::from(place));
            true
        }
        Act::MasterCrashes => {
            state.masters[0].run = next_run(state);
            worker_ends(state);
            true
        }
        Act::WorkerEnds { late } => {
            let worker = state.workers[0];
            let may_be_late = is_on_a_shard(&worker) && state.workers[1].life == Life::Gone;
            if worker.pc == Pc::Idle || late && !may_be_late {
                return false;
            }
            if late {
                state.workers[1] = Worker { life: Life::Late, ..worker };
            }
            worker_ends(state);
            true
        }
        Act::SecondBegins => begins(state, 0),
        Act::CopyBegins => {
            state.masters[1] = Master { run: next_run(state), ..state.masters[0] };
            begins(state, 1) && split.bounds.faults > 0
        }
        _ => false,
    }
}

fn begins(state: &mut State, master: u8) -> bool {
    if state.workers[1].life != Life::Gone {
        return false;
    }
    state.workers[1] = Worker::idle(master);
    true
}

fn next_run(state: &State) -> u8 {
    state.masters[0].run.max(state.masters[1].run) + 1
}

/// Whether the worker's next action is one statement on a shard.
fn is_on_a_shard(worker: &Worker) -> bool {
    matches!(
        worker.pc,
        Pc::StepAnnounce
            | Pc::StepCommit
            | Pc::StepConsume
            | Pc::Fence
            | Pc::Announce
            | Pc::Commit
            | Pc::Consume
            | Pc::Open
            | Pc::Move
            | Pc::AbortReopen
            | Pc::RevertOpen
            | Pc::SettleOpen
            | Pc::SettledOpen
            | Pc::SettledMove
            | Pc::UndoRows
            | Pc::FinishPurging
            | Pc::FinishRows
    )
}

/// The process and its sessions are gone. A late worker keeps what it had open.
fn worker_ends(state: &mut State) {
    for place in &mut state.places {
        if place.barrier == Some(0) {
            place.barrier = None;
        }
    }
    state.workers[0] = Worker::idle(0);
}

/// The sessions on the shard are gone, with everything that they had open.
fn shard_ends(state: &mut State, place: usize) {
    writers::end_all(state, place);
    state.places[place].barrier = None;
    for number in 0..2 {
        let worker = &mut state.workers[number];
        if worker.source_place() == place { worker.source = false } else { worker.target = false }
    }
}

fn falls_behind(state: &mut State, place: u8, cause: Cause) -> bool {
    let here = state.places[usize::from(place)];
    // Once rows are deleted on the source, only the target has them, and nothing helps if it is set back.
    if state.places.iter().any(|place| place.purging) {
        return false;
    }
    state.back = Back::Place(place, cause, here);
    true
}

fn shard_set_back(state: &mut State) -> bool {
    let Back::Place(place, cause, before) = state.back else { return false };
    let at = usize::from(place);
    let now = state.places[at];
    // The shard is not set back to a time before a whole cutover that another one has followed. Such a shard
    // knows nothing of the second, like one that was restored to a time before its split.
    let is_ancient = state.masters.iter().any(|master| {
        master.leg > 0
            && (master.phase == Phase::Completed
                || state.workers.iter().any(|worker| worker.pc == Pc::Decide))
            && if master.target() == at {
                before.give != Give::Moved && before.take != Take::Open
            } else {
                before.take != Take::Open
            }
    });
    if is_ancient || state.places.iter().any(|place| place.purging) {
        return false;
    }
    state.setbacks -= 1;
    state.back = Back::Nothing;
    shard_ends(state, at);
    let timeline = now.timeline + u8::from(cause == Cause::Standby);
    state.places[at] = Place { timeline, barrier: None, ..before };
    account(state, place, &now);
    true
}

/// Writes that only this server had acknowledged are lost with it. The protocol does not answer for them.
fn account(state: &mut State, place: u8, now: &Place) {
    let here = state.places[usize::from(place)];
    let lost = now.rows & !here.rows;
    let of_here = if place == 0 { !state.home } else { state.home };
    if state.owner == place {
        state.acked &= !(lost & of_here);
        let opened_since = now.take == Take::Open && here.take == Take::Closed;
        if opened_since {
            state.owner = 1 - place;
        }
        let about_to_open = |worker: &Worker| {
            worker.life != Life::Gone
                && worker.target
                && matches!(worker.pc, Pc::Decide | Pc::Open | Pc::SettledOpen)
        };
        if !opened_since && here.give == Give::Capture && state.workers.iter().any(about_to_open) {
            // The place loses its fence after the last look at it.
            state.owner = 1 - place;
            state.excused = true;
        }
    } else {
        state.excused = true;
    }
}

fn master_set_back(state: &mut State, old_lives: bool) -> bool {
    let Back::Master(before) = state.back else { return false };
    let old = state.workers[0];
    if old_lives && (old.pc == Pc::Idle || state.workers[1].life != Life::Gone) {
        return false;
    }
    state.setbacks -= 1;
    state.back = Back::Nothing;
    let run = next_run(state);
    if old_lives {
        // The old primary and its worker continue.
        state.masters[1] = state.masters[0];
        for place in &mut state.places {
            place.barrier = place.barrier.map(|_| 1);
        }
        state.workers[1] = Worker { master: 1, ..old };
        state.workers[0] = Worker::idle(0);
    } else {
        worker_ends(state);
    }
    state.masters[0] = Master { run, ..before };
    true
}
