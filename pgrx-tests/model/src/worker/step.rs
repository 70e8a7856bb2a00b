//! A step: src/split/copy/step.rs.

use super::At;
use crate::rules::Rule;
use crate::state::{NOTHING, Pc, Place, Step, WRITERS, rows_of};
use crate::writers;

pub fn work(at: &mut At) -> bool {
    match at.me().pc {
        Pc::StepSnapshot => begin(at),
        Pc::StepAnnounce => announce(at, false, Pc::StepCommit, Pc::StepConsume),
        Pc::StepCommit => commit(at, Pc::StepAnnounce, Pc::StepProgress, Pc::StepConsume),
        Pc::StepProgress => late_rows(at, Pc::StepConsume),
        _ => consume(at, Pc::Idle),
    }
}

/// The end of such a step.
fn end(at: &mut At) -> bool {
    let next = if at.me().completes { Pc::Complete } else { Pc::Ready };
    at.me().step = Step::default();
    at.goes(next)
}

/// S, the target's transaction, and the work of the step: `observe_source`, `begin_target`, `compare`.
fn begin(at: &mut At) -> bool {
    match look(at) {
        None => at.fails(),
        Some(step) if step.window == 0 => end(at),
        // The rows that only the old source has would be deleted.
        Some(step) if step.window == u8::MAX && has_strays(at) => at.is_refused(),
        Some(step) if step.window == u8::MAX && !remembers(at) => forget(at),
        Some(step) => {
            at.me().step = step;
            at.goes(first(at))
        }
    }
}

fn remembers(at: &mut At) -> bool {
    let target = at.target();
    at.state.places[target].seen_timeline == NOTHING || !at.keeps(Rule::RestartRemembered)
}

/// The target records that nothing it has counts, before the source counts the step that copies again. With
/// that count the two would agree.
fn forget(at: &mut At) -> bool {
    let target = at.target();
    at.state.places[target].seen_timeline = NOTHING;
    at.commits_on(target);
    at.goes(Pc::StepSnapshot)
}

/// On a reverse split: whether the old source accepted changes without its fence that no window has taken.
fn has_strays(at: &mut At) -> bool {
    let (source, target, leg) = (at.source(), at.target(), at.master().leg);
    // In the first direction, source and target are exchanged.
    let (to, from) = (at.state.places[source], at.state.places[target]);
    let was_set_back =
        to.steps > from.announced || to.steps < from.consumed || to.seen_timeline != from.timeline;
    let is_stray = |xid: &u8| *xid != 0 && (was_set_back || to.seen & 1 << xid == 0);
    leg > 0 && at.keeps(Rule::StrayStopsTheWayBack) && from.queue.iter().any(is_stray)
}

/// The first of a step's commits.
pub fn first_of(at: &At, announce: Pc, commit: Pc, consume: Pc) -> Pc {
    if !at.keeps(Rule::ConsumedAfterCommit) {
        consume
    } else if !at.keeps(Rule::DurableBeforeCommit) {
        commit
    } else {
        announce
    }
}

fn first(at: &At) -> Pc {
    first_of(at, Pc::StepAnnounce, Pc::StepCommit, Pc::StepConsume)
}

/// Returns `None` if the worker has no session, or was replaced.
pub fn look(at: &mut At) -> Option<Step> {
    if !at.me().source || !at.may_on_target() {
        return None;
    }
    let (source, target) = (at.source(), at.target());
    let open = writers::open(at.state, source);
    let (here, there) = (at.state.places[source], at.state.places[target]);
    let seen = (1..here.next_xid).fold(0, |seen, xid| seen | 1 << xid) & !open;
    let behind = there.steps < here.consumed && at.keeps(Rule::TargetBehindNoticed);
    let ahead = there.steps > here.announced && at.keeps(Rule::SourceBehindNoticed);
    let other = there.seen_timeline != here.timeline && at.keeps(Rule::TimelineCompared);
    let nothing = there.seen_timeline == NOTHING;
    let window = if behind || ahead || other || nothing { u8::MAX } else { window(at, &here, &there, seen) };
    Some(Step {
        seen,
        rows: here.rows,
        timeline: here.timeline,
        number: there.steps.max(here.announced) + 1,
        window,
        is_consumed: false,
    })
}

/// Returns the rows whose entries S sees, and the previous snapshot did not.
fn window(at: &At, here: &Place, there: &Place, seen: u8) -> u8 {
    let newest = 7_u8.saturating_sub(there.seen.leading_zeros() as u8);
    let is_new = |xid: u8| {
        xid != 0
            && if at.keeps(Rule::WindowBySnapshots) {
                there.seen & 1 << xid == 0 && seen & 1 << xid != 0
            } else {
                there.seen == 0 || xid > newest
            }
    };
    (0..WRITERS)
        .filter(|writer| is_new(here.queue[*writer]))
        .fold(0, |rows, writer| rows | rows_of(1 << writer))
}

/// `send_announcement`: the source counts the step, durably.
pub fn announce(at: &mut At, decides: bool, next: Pc, consume: Pc) -> bool {
    if !at.may_on_source() {
        return at.fails();
    }
    let source = at.source();
    let (step, run) = (at.me().step, at.master().run);
    let notes = decides && at.keeps(Rule::DecidingNoted);
    let here = &mut at.state.places[source];
    here.announced = step.number;
    if notes {
        here.deciding = run;
    }
    at.commits_on(source);
    let next = if at.keeps(Rule::DurableBeforeCommit) { next } else { consume };
    at.goes(next)
}

/// Commits rows and progress together on the target.
pub fn commit(at: &mut At, announce: Pc, progress: Pc, consume: Pc) -> bool {
    if !at.me().target {
        return at.fails();
    }
    let target = at.target();
    let step = at.me().step;
    let together = at.keeps(Rule::ProgressWithRows);
    let there = &mut at.state.places[target];
    (there.seen, there.seen_timeline, there.steps) = (step.seen, step.timeline, step.number);
    if together {
        there.rows = there.rows & !step.window | step.rows & step.window;
    }
    at.commits_on(target);
    let next = match (together, at.keeps(Rule::DurableBeforeCommit)) {
        (false, _) => progress,
        (true, false) => announce,
        (true, true) => consume,
    };
    at.goes(next)
}

/// Commits the rows, if the progress was committed before them.
pub fn late_rows(at: &mut At, consume: Pc) -> bool {
    if !at.me().target {
        return at.fails();
    }
    let target = at.target();
    let step = at.me().step;
    let there = &mut at.state.places[target];
    there.rows = there.rows & !step.window | step.rows & step.window;
    at.goes(consume)
}

/// Removes the window from the queue: `window::consume`.
fn consume(at: &mut At, _: Pc) -> bool {
    if at.keeps(Rule::ConsumedAfterCommit) {
        return consumes(at) && end(at) || at.fails();
    }
    if at.me().step.is_consumed {
        return end(at);
    }
    consumes(at) && at.goes(Pc::StepAnnounce) || at.fails()
}

pub fn consumes(at: &mut At) -> bool {
    if !at.may_on_source() {
        return false;
    }
    let source = at.source();
    let step = at.me().step;
    let only_seen = at.keeps(Rule::OnlySeenConsumed);
    let here = &mut at.state.places[source];
    for xid in &mut here.queue {
        if !only_seen || step.seen & 1 << *xid != 0 {
            *xid = 0;
        }
    }
    here.consumed = step.number;
    at.me().step.is_consumed = true;
    at.commits_on(source);
    true
}
