//! Reference tables: every shard has all rows of them, as their origin has them a moment before. One process follows
//! all sets, shard by shard; the state of a shard is recorded on that shard, so the next process continues from there.

pub mod cleanup;
mod conflict;
mod copies;
mod install;
mod kept;
mod merge;
mod points;
pub mod poll;
pub mod probe;
mod step;
mod table;
mod task;
mod waiting;

pub use waiting::wait;

use crate::agent::error::SplitError;
use crate::agent::one_database::is_one_database;
use crate::agent::state::reference as rows;
use crate::catalog::reference::{self, Member, ReferencePlace, ReferenceSet, ReferenceState, Report};
use crate::catalog::shard::ShardStatus;
use crate::catalog::split;
use crate::guc;
use crate::reference::poll::{Pulse, existing, look_at_origin, queues};
use crate::reference::probe::SetEnd;
use crate::remote::quote::{ident, literal};
use crate::server::injection::reach;
use crate::server::txn::transaction;
use crate::server::wait;
use copies::{LastReport, ReferenceCopy, ReferenceOrigin};
use install::ReferenceWorker;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use task::Task;

/// The interval of reading the catalog.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The interval of checks of a shard that has all of an origin whose queues are empty.
const LOOK_AT_COPY: Duration = Duration::from_secs(5);
/// The interval of reports about a shard without news.
const TELL: Duration = Duration::from_secs(2);

/// The memory of one set.
#[derive(Default)]
struct SetMemory {
    origin: ReferenceOrigin,
    copies: BTreeMap<String, ReferenceCopy>,
}

/// The process that follows all sets.
pub struct Follower {
    generation: i64,
    identity: String,
    sets: Vec<ReferenceSet>,
    looked: Option<Instant>,
    memory: BTreeMap<i64, SetMemory>,
}

/// Whether to continue, or to end because another one has taken over or nothing is left.
#[derive(PartialEq, Eq)]
pub enum NextTurn {
    Turn,
    End,
}

impl Follower {
    pub fn begin() -> Follower {
        let (generation, identity) = transaction(|| (reference::next_generation(), split::identity()));
        Follower { generation, identity, sets: Vec::new(), looked: None, memory: BTreeMap::new() }
    }

    /// Takes the sets. Sessions of a shard that has moved are dropped, with all that was read there.
    fn take(&mut self, sets: Vec<ReferenceSet>) {
        let is_as = |set: &ReferenceSet, id: i64| set.id == id;
        self.memory.retain(|id, _| {
            let (now, before) =
                (sets.iter().find(|set| is_as(set, *id)), self.sets.iter().find(|set| is_as(set, *id)));
            match (now, before) {
                (Some(now), Some(before)) => now.is_where(before),
                (Some(_), None) => true,
                (None, _) => false,
            }
        });
        for set in &sets {
            let is_same = self.sets.iter().any(|before| before.id == set.id && before.tables == set.tables);
            if let Some(memory) = self.memory.get_mut(&set.id).filter(|_| !is_same) {
                memory.copies.values_mut().for_each(|copy| {
                    (copy.own, copy.has_all_of) = (None, None);
                    // A number may belong to another table now.
                    copy.told.iter_mut().for_each(|told| told.filled.clear());
                });
            }
        }
        self.sets = sets;
    }

    /// Makes one step on each shard that is behind.
    pub fn turn(&mut self) -> NextTurn {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN) {
            match transaction(reference::sets) {
                Ok(sets) => self.take(sets),
                Err(failure) => pgrx::log!("reference tables cannot be checked: {}", failure.cleaned()),
            }
            self.looked = Some(Instant::now());
        }
        if self.sets.is_empty() {
            return NextTurn::End;
        }
        let by = ReferenceWorker { identity: &self.identity, generation: self.generation };
        for set in &self.sets {
            let memory = self.memory.entry(set.id).or_default();
            if follow(set, memory, &by).is_err() {
                return NextTurn::End;
            }
            if !set.dropped.is_empty() {
                match remove(set, memory, &by) {
                    Ok(true) => self.looked = None,
                    Ok(false) => {}
                    Err(Superseded) => return NextTurn::End,
                }
            }
        }
        NextTurn::Turn
    }
}

/// Another worker has taken over, or one had before this master was restored: the next one comes after both.
struct Superseded;

/// Whether an error shows that.
fn is_over(set: &ReferenceSet, error: &SplitError) -> bool {
    let SplitError::Behind { generation, .. } = error else {
        return matches!(error, SplitError::Superseded);
    };
    pgrx::log!("reference tables {}: {error}, and the worker that continues them", set.id);
    transaction(|| reference::catch_up_generation(set.id, *generation));
    true
}

fn follow(set: &ReferenceSet, memory: &mut SetMemory, by: &ReferenceWorker<'_>) -> Result<(), Superseded> {
    memory.copies.retain(|key, _| set.copies.iter().any(|place| place.shard.shard_key == *key));
    if set.tables.is_empty() || !memory.origin.backoff.is_due() {
        return Ok(());
    }
    match follow_origin(set, memory, by) {
        Ok(()) => memory.origin.backoff.succeeded(),
        Err(error) if is_over(set, &error) => return Err(Superseded),
        Err(error) => origin_failed(set, &mut memory.origin, &mut memory.copies, error),
    }
    Ok(())
}

fn follow_origin(
    set: &ReferenceSet,
    SetMemory { origin, copies }: &mut SetMemory,
    by: &ReferenceWorker<'_>,
) -> Result<(), SplitError> {
    let began = SystemTime::now();
    let (shard, keyspace) = (&set.origin.shard.shard_key, &set.keyspace);
    wait::report(&format!("following reference tables of keyspace \"{keyspace}\" on shard \"{shard}\""));
    let pulse = look_at_origin(set, origin, by)?;
    if pulse.is_full {
        copies.values_mut().for_each(|copy| copy.has_all_of = None);
    }
    let entries = step_on_each(set, origin, copies, by, &pulse, began)?;
    for place in &set.copies {
        let Some(copy) = copies.get_mut(&place.shard.shard_key) else { continue };
        if place.shard.status == ShardStatus::Disabled {
            // Nothing is copied there: its rows are outdated, until a step after it is used again.
            copy.has_all_of = None;
        } else if copy.has_all_of.is_some() {
            tell(set, place, copy, ReferenceState::Following, began);
        }
    }
    if entries || pulse.has_entries {
        consume(set, origin, copies, by, &pulse)?;
    }
    Ok(())
}

/// Makes a step on each. Returns whether any of them has applied entries. Errors of the origin, or of a newer worker
/// that has taken over, are returned; those of a copy are kept with it.
fn step_on_each(
    set: &ReferenceSet,
    origin: &mut ReferenceOrigin,
    copies: &mut BTreeMap<String, ReferenceCopy>,
    by: &ReferenceWorker<'_>,
    pulse: &Pulse,
    began: SystemTime,
) -> Result<bool, SplitError> {
    let mut entries = false;
    for place in &set.copies {
        let copy = copies.entry(place.shard.shard_key.clone()).or_default();
        let is_due = place.shard.status != ShardStatus::Disabled && copy.backoff.is_due();
        if !is_due || !is_behind(copy, pulse) {
            continue;
        }
        match step_on(set, place, origin, copy, by) {
            Ok(stepped) => {
                entries |= stepped > 0;
                copy.has_all_of = Some((pulse.tables.clone(), Instant::now()));
                copy.backoff.succeeded();
                copy.failure = None;
            }
            Err(error @ (SplitError::Superseded | SplitError::Behind { .. })) => return Err(error),
            Err(SplitError::Remote(error)) if error.shard == set.origin.shard.shard_key => {
                return Err(SplitError::Remote(error));
            }
            Err(error) => {
                origin.let_go_reader();
                copy_failed(set, place, copy, error, began);
            }
        }
    }
    Ok(entries)
}

fn is_behind(copy: &ReferenceCopy, pulse: &Pulse) -> bool {
    match &copy.has_all_of {
        Some((tables, at)) => pulse.has_entries || *tables != pulse.tables || at.elapsed() >= LOOK_AT_COPY,
        None => true,
    }
}

/// Makes a step. Returns how many entries it has applied.
fn step_on(
    set: &ReferenceSet,
    place: &ReferencePlace,
    origin: &mut ReferenceOrigin,
    copy: &mut ReferenceCopy,
    by: &ReferenceWorker<'_>,
) -> Result<i64, SplitError> {
    let backoff = copy.backoff.clone();
    let outcome = copies::with_connect_timeout(&backoff, || {
        let own = match &copy.own {
            Some(own) => own.clone(),
            None => own_tables(set, place)?,
        };
        copy.own = Some(own.clone());
        let tables: Vec<Member> =
            set.tables.iter().filter(|member| !own.contains(&member.ordinal)).cloned().collect();
        if tables.is_empty() {
            return Ok(0);
        }
        let task = Task { set, place, tables: &tables, by };
        let stepped = step::step(&task, origin, copy)?;
        copy.snapshot = stepped.snapshot;
        Ok(stepped.entries)
    });
    copy.backoff = backoff;
    outcome
}

/// Returns the origin's own tables: tables of the same name in the same database are one table.
fn own_tables(set: &ReferenceSet, place: &ReferencePlace) -> Result<Vec<i32>, SplitError> {
    let name = |member: &Member, place: &ReferencePlace| {
        (ident(&member.schema(&place.shard)), member.name.name.clone())
    };
    let same: Vec<i32> = set
        .tables
        .iter()
        .filter(|member| name(member, place) == name(member, &set.origin))
        .map(|member| member.ordinal)
        .collect();
    if same.is_empty() || !is_one_database(&set.origin.shard, &place.shard)? {
        Ok(Vec::new())
    } else {
        Ok(same)
    }
}

/// Removes what all copies have seen from the queues. A copy that is unreachable for long does not fill the origin's
/// disk: it is made anew.
fn consume(
    set: &ReferenceSet,
    origin: &mut ReferenceOrigin,
    copies: &BTreeMap<String, ReferenceCopy>,
    by: &ReferenceWorker<'_>,
    pulse: &Pulse,
) -> Result<(), SplitError> {
    let is_much = pulse.bytes > guc::queue_max_bytes() / 2;
    let mut snapshots = Vec::new();
    for place in set.copies.iter().filter(|place| place.shard.status != ShardStatus::Disabled) {
        let copy = copies.get(&place.shard.shard_key);
        if copy.is_some_and(|copy| copy.own.as_ref().is_some_and(|own| own.len() == set.tables.len())) {
            continue;
        }
        match copy.filter(|copy| copy.failure.is_none() || !is_much).and_then(|copy| copy.snapshot.clone()) {
            Some(snapshot) => snapshots.push(snapshot),
            None if is_much => {}
            None => return Ok(()),
        }
    }
    let control = origin.control(set, by)?;
    let queues = existing(control, queues(set))?;
    rows::consume(control, set, by.generation, &snapshots, &queues)?;
    Ok(reach(points::CONSUMED)?)
}

fn origin_failed(
    set: &ReferenceSet,
    origin: &mut ReferenceOrigin,
    copies: &mut BTreeMap<String, ReferenceCopy>,
    error: SplitError,
) {
    origin.let_go();
    origin.backoff.failed();
    let is_transient = error.is_transient();
    let waited = has_waited(&error);
    let failure = error.into_failure();
    let failure = if waited && failure.hint.is_none() { failure.hint(HOLDS_UP) } else { failure };
    for place in &set.copies {
        let copy = copies.entry(place.shard.shard_key.clone()).or_default();
        copy.let_go();
        copy.failure = Some(failure.clone());
        let state = if is_transient { before(copy) } else { ReferenceState::Failed };
        tell(set, place, copy, state, SystemTime::now());
    }
}

fn copy_failed(
    set: &ReferenceSet,
    place: &ReferencePlace,
    copy: &mut ReferenceCopy,
    error: SplitError,
    began: SystemTime,
) {
    copy.let_go();
    copy.backoff.failed();
    let waited = has_waited(&error);
    let state = match &error {
        SplitError::Remote(error) if error.is_transient() && !waited => ReferenceState::Away,
        error if error.is_transient() => before(copy),
        _ => ReferenceState::Failed,
    };
    let failure = error.into_failure();
    let hint = match failure.sqlstate.as_str().get(..2) {
        _ if failure.hint.is_some() => None,
        _ if waited => Some(HOLDS_UP.to_owned()),
        Some("22" | "23") => Some(alike(&set.origin.shard.shard_key, &place.shard.shard_key)),
        Some(_) | None => None,
    };
    copy.failure = Some(match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    });
    tell(set, place, copy, state, began);
}

const HOLDS_UP: &str = "A transaction there has locked the table or rows of it. pg_stat_activity shows long transactions, pg_prepared_xacts prepared ones.";

/// Returns a hint for a table of a shard that requires something of rows that its origin's does not.
fn alike(origin: &str, shard: &str) -> String {
    format!(
        "Rows of the origin do not fit into the shard's table. Make both tables alike; shard_schema_diff({}, {}) lists differences. Then the shard follows again automatically.",
        literal(origin),
        literal(shard)
    )
}

/// Whether a shard has answered that it has waited for others without success.
fn has_waited(error: &SplitError) -> bool {
    let SplitError::Remote(error) = error else { return false };
    ["40001", "40P01", "55P03", "57014"].iter().any(|code| error.is(code))
}

/// Returns the state of a copy without errors, whether it has been complete or not.
fn before(copy: &ReferenceCopy) -> ReferenceState {
    match &copy.told {
        Some(told) if told.state == ReferenceState::Following => ReferenceState::Following,
        _ => ReferenceState::Filling,
    }
}

/// Records the state of a copy, unless that is known. `began`: if it follows, it has what was committed on the origin
/// by then, however long recording takes.
fn tell(
    set: &ReferenceSet,
    place: &ReferencePlace,
    copy: &mut ReferenceCopy,
    state: ReferenceState,
    began: SystemTime,
) {
    let error = copy.failure.as_ref().map(|failure| failure.message.clone());
    let is_well = copy.has_all_of.is_some() && copy.failure.is_none();
    let filled: Vec<i32> = if is_well {
        set.tables.iter().map(|member| member.ordinal).collect()
    } else {
        copy.told.as_ref().map(|told| told.filled.clone()).unwrap_or_default()
    };
    let is_known = copy.told.as_ref().is_some_and(|told| {
        told.state == state
            && told.error == error
            && told.filled == filled
            && (!is_well || told.at.elapsed() < TELL)
    });
    if is_known {
        return;
    }
    let report = Report {
        state,
        filled: is_well.then_some(filled.as_slice()),
        as_of: is_well.then_some(began),
        failure: copy.failure.as_ref(),
    };
    transaction(|| reference::report(set.id, &place.shard.shard_key, &report));
    copy.told = Some(LastReport { state, filled, error, at: Instant::now() });
}

/// Removes dropped tables from all shards. Returns whether that is done.
fn remove(set: &ReferenceSet, memory: &mut SetMemory, by: &ReferenceWorker<'_>) -> Result<bool, Superseded> {
    let mut is_done = true;
    let ends = set.copies.iter().map(|place| (place, SetEnd::Copy));
    for (place, end) in ends.chain([(&set.origin, SetEnd::Origin)]) {
        let backoff = match end {
            SetEnd::Origin => &mut memory.origin.backoff,
            SetEnd::Copy => &mut memory.copies.entry(place.shard.shard_key.clone()).or_default().backoff,
        };
        // The origin is the last: until then it is not taken for one that has nothing.
        if !backoff.is_due() || end == SetEnd::Origin && !is_done {
            is_done = false;
            continue;
        }
        let outcome = copies::with_connect_timeout(backoff, || copies::remove(set, place, end, by));
        if let Err(error) = outcome {
            if is_over(set, &error) {
                return Err(Superseded);
            }
            backoff.failed();
            let failure = error.into_failure();
            transaction(|| reference::report_dropped(set.id, &failure));
            is_done = false;
        }
    }
    if is_done {
        let ordinals: Vec<i32> = set.dropped.iter().map(|member| member.ordinal).collect();
        transaction(|| reference::forget(set.id, &ordinals));
    }
    Ok(is_done)
}
