//! Opening a target that has all of its rows after the decision without another read of the source's tables. A session
//! may hold a lock on these for any time, and no step gets past it; nor does a worker get past the plan's row on the
//! master while a transaction holds it.
//!
//! Invariant: the source's record of the cutover is in its agent's tables, which only movers lock. `deciding` is set
//! within the fence, by the commit that announces the cutover's last step, and is removed by the commit that opens the
//! source again. So while it is set, the source has been fenced since it announced that step, in all that it
//! remembers; steps that it has announced since were a recovery's, under the same fence. If the last one that it has
//! announced is the last that the target has committed, the target holds a snapshot of the source from within the
//! fence: all that it will ever have. A side that was restored to an earlier time is behind the other, or has lost the
//! note.

use crate::agent::error::Result;
use crate::agent::opening::LOCK_TIMEOUT;
use crate::agent::session::Side;
use crate::agent::state::decision::{self, Decided, EarlierDecisions};
use crate::agent::state::side::{self, Installed, SideState, Version};
use crate::agent::state::{consumed, epoch, progress};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::cutover::open::{open_side, record_opened};
use crate::split::cutover::record_moved;
use crate::split::injection_points::{self, reach};
use crate::split::sequences;

/// Opens the target and tells the source, if no row is left to be copied. Returns false if only steps can find that
/// out.
///
/// The plan's row is not needed, so it is not locked: a lock of their own keeps workers of one master apart, and an
/// earlier one has left only its sessions on the shards, which are ended first. `seen` is the generation in the row.
pub fn complete(plan: &Plan, seen: i64, identity: &str, version: i64) -> Result<bool> {
    let Some(mut target) = take(plan, seen, identity, Side::Target)? else { return Ok(false) };
    let Some(mut source) = take(plan, seen, identity, Side::Source)? else { return Ok(false) };
    let says = |row: Option<side::SideRow>, state| row.is_some_and(|row| row.state == state);
    let is_decided = |row: Option<side::SideRow>| row.is_some_and(|row| row.version == Some(version));
    let there = side::read(&mut target.session, plan.id, Side::Target)?;
    let here = side::read(&mut source.session, plan.id, Side::Source)?;
    let is_shut = says(here, SideState::Fenced) || says(here, SideState::Moved) && is_decided(here);
    if !is_shut {
        return Ok(false);
    }
    let is_open = says(there, SideState::Open) && is_decided(there);
    if !is_open {
        let is_whole = has_all(&mut source.session, &mut target.session, plan)?;
        if !says(there, SideState::Closed) || !is_whole {
            return Ok(false);
        }
        raise_sequences(&mut source.session, &mut target.session, plan)?;
        reach(injection_points::RECOVERY_CAUGHT_UP)?;
        open_side(&mut target.session, plan, target.generation, version)?;
    }
    record_opened(plan);
    reach(injection_points::CUTOVER_OPENED)?;
    let earlier = EarlierDecisions::before(plan, version);
    let decided = Version::Is(Decided::of(plan, version, &earlier));
    epoch::change(&mut source.session, plan.id, source.generation, &side::MOVE, decided)?;
    reach(injection_points::CUTOVER_MOVED)?;
    record_moved(plan, None);
    Ok(true)
}

/// A side on which the earlier worker has no session any more.
struct TakenSide {
    session: Connection,
    /// The generation of that worker.
    generation: i64,
}

/// Takes a side. Returns None if it does not know the split, or knows workers that this master does not.
fn take(plan: &Plan, seen: i64, identity: &str, side: Side) -> Result<Option<TakenSide>> {
    let mut session = epoch::open(plan, identity, side, "recovery")?;
    if side::installed(&mut session, plan, side)? != Installed::Ours {
        return Ok(None);
    }
    decision::ensure(&mut session)?;
    epoch::end_previous(&mut session, plan, side)?;
    epoch::register(&mut session, plan, side)?;
    let known = epoch::known_generation(&mut session, plan, side)?;
    Ok(known.filter(|known| *known <= seen).map(|generation| TakenSide { session, generation }))
}

fn has_all(source: &mut Connection, target: &mut Connection, plan: &Plan) -> Result<bool> {
    let Some(progress) = progress::stored(target, plan)? else { return Ok(false) };
    let counters = consumed::counters(source, plan.id)?;
    Ok(consumed::deciding(source, plan.id)?.is_some()
        && !consumed::is_purging(source, plan.id)?
        && !counters.overflowed
        && counters.announced == progress.steps
        && progress.snapshot.is_some()
        && !progress.draining
        && progress.again.is_none()
        && progress.is_copied())
}

/// Raises the sequences once more; the cutover has raised them before it decided. This is for a target that has failed
/// over since, and waits for no lock.
fn raise_sequences(source: &mut Connection, target: &mut Connection, plan: &Plan) -> Result<()> {
    source.run("SET lock_timeout = '100ms'")?;
    if let Err(error) = sequences::raise_of_plan(plan, source, target) {
        sequences::tell(plan.id, &error.to_string());
        target.run("ROLLBACK")?;
    }
    source.run(&format!("SET lock_timeout = '{LOCK_TIMEOUT}'"))?;
    Ok(())
}
