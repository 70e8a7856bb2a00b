//! The reverse split: a split in the other direction that needs no copy. Its capture is installed on the target while
//! the guard still refuses every client, so its queue has the key of each row that differs from what the source had at
//! the cutover. Until it is requested it is idle: the source stays frozen, and proof and finish do not depend on it.
//! Once it is requested it is a split like any other, which finds all of its rows copied.
//!
//! Invariants: its capture is installed before the split may be cut over. It begins only if the source is `moved` and
//! has accepted no writes since. It deletes no row of the source when it is rolled back. Of the split and its reverse
//! split one has the keys on the master. Its decision is the end of the split in the same commit.

pub mod arm;
mod end;

pub use crate::split::reverse::arm::look;
pub use crate::split::reverse::arm::measure;
pub use end::{has_none, leave, remove, under_way};

use super::cutover::recovery;
use super::end::before;
use super::engine::Engine;
use super::engine::sessions::EngineSessions;
use super::injection_points::{self, reach};
use super::plan::check;
use super::table::{self, SplitTable, columns};
use super::{install, record};
use crate::agent::error::{Result, SplitError};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Leaf, Observation, TableShape};
use crate::agent::state::consumed;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::{self, CopyProgress, LeafProgress, TableProgress};
use crate::agent::state::side::{self, Installed, SideState};
use crate::catalog::reverse_split;
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::{self, CutoverStep, request, row};
use crate::error::SqlState;
use crate::guc;
use crate::remote::Connection;
use crate::server::txn::{transaction, try_transaction};
use crate::split::copy::change_effect;
use crate::split::copy::change_effect::ChangeEffect;
use crate::split::copy::leaves;
use crate::split::cutover::side_state_check;
use crate::split::untrusted_code;

/// Plans the reverse split of a split that is being installed, and captures on its target. If it is repeated, it finds
/// what it has made. `sessions`: those that have installed the split, on its source and its target, if it was not
/// installed before.
pub fn install(tenure: &Tenure, sessions: Option<(Connection, Connection)>) -> Result<()> {
    let there = &tenure.plan;
    let known = try_transaction(|| reverse_split::of(there.id))?;
    if known.is_none() && !guc::reverse() {
        return Ok(());
    }
    if let Some(table) = there.tables.iter().find(|table| !table.maps.is_empty()) {
        no_way_back(there.id, &format!("columns of table {} are mapped", table.table_name));
        return Ok(());
    }
    let id = known.map_or_else(|| transaction(|| reverse_split::create(there)), |known| known.id);
    reach(injection_points::REVERSE_PLANNED)?;
    let back = arm::take(id, &tenure.identity)?;
    let (mut source, mut target) = match sessions {
        // They have the secret, which is the same, and the prepared queries; new sessions would plan the longest
        // queries once more.
        Some((target, mut source)) => {
            source.run("RESET session_replication_role")?;
            (source, target)
        }
        None => (back.open(Side::Source, "reverse split")?, back.open(Side::Target, "reverse split")?),
    };
    let tables = table::load(&back.plan, &mut source, &mut target)?;
    drop(target);
    if let Some(table) = tables.iter().find(|table| !table.differences.is_empty()) {
        no_way_back(there.id, &format!("{}: {}", table.policy.table_name, table.differences.join("; ")));
        return try_transaction(|| {
            request::drop_reverse(id);
            record::rolled_back(id, false)
        });
    }
    capture(&mut source, &back, &tables)
}

/// Installs capture, and stores what counts as copied back from then on: the current tables. This is done only before
/// the cutover.
fn capture(source: &mut Connection, back: &Tenure, tables: &[SplitTable]) -> Result<()> {
    install::capture_alone(source, back, tables)?;
    arm::drop_forgotten(source, &back.plan)?;
    reach(injection_points::REVERSE_CAPTURED)?;
    let now = seen::look(source, &back.plan, Side::Source)?;
    let baseline = baseline(&now, tables)?;
    transaction(|| split_state::cutover::baseline(back.plan.id, &progress::to_json(&baseline)));
    Ok(())
}

/// Captures partitions that were added to the target of a split which is about to be cut over. If its tables cannot be
/// reversed as they are now, nothing changes.
pub fn capture_partitions(there: i64, identity: &str) -> Result<()> {
    let Some(back) = arm::armed(there)? else { return Ok(()) };
    let back = arm::take(back.id, identity)?;
    let mut source = back.open(Side::Source, "reverse split")?;
    let mut target = back.open(Side::Target, "reverse split")?;
    let tables = table::load(&back.plan, &mut source, &mut target)?;
    if tables.iter().any(|table| !table.differences.is_empty()) {
        return Ok(());
    }
    capture(&mut source, &back, &tables)
}

fn no_way_back(id: i64, why: &str) {
    transaction(|| split::event(id, None, None, &format!("it cannot be taken back: {why}")));
}

/// Returns the progress of a split whose rows are all at their destination.
fn baseline(now: &Observation, tables: &[SplitTable]) -> Result<CopyProgress> {
    let mut all = Vec::new();
    for (shape, table) in now.tables.iter().zip(tables) {
        if shape.leaves().iter().any(|leaf| !leaf.captured) && guc::capture() {
            return Err(SplitError::Retry(format!("the new partitions of {} to be captured", shape.name)));
        }
        all.push(TableProgress {
            leaves: shape.leaves().iter().map(LeafProgress::copied).collect(),
            ..TableProgress::of(shape, &table.target)
        });
    }
    Ok(CopyProgress { tables: all, ..CopyProgress::default() })
}

/// Adopts the split's tables as they are now: at its cutover their rows are the same on both sides in these columns.
/// Their files and triggers stay as noted before.
pub fn renew(there: i64, tables: &[SplitTable]) -> Result<()> {
    let Some(back) = arm::armed(there)? else { return Ok(()) };
    let Some(mut known) = stored_baseline(back.id, tables.len()) else { return Ok(()) };
    for (known, table) in known.tables.iter_mut().zip(tables) {
        known.adopt(&table.target, &table.source);
    }
    transaction(|| {
        split_state::cutover::baseline(back.id, &progress::to_json(&known));
        if let Some(why) = tables.iter().find_map(hindrance) {
            let text = format!("as its tables are now, it cannot be taken back: {why}");
            split::event(there, None, None, &text);
        }
    });
    Ok(())
}

/// Returns why a table cannot be reversed: a change that was harmless in one direction, for example a column that the
/// target keeps for itself, may not be in the other.
fn hindrance(table: &SplitTable) -> Option<String> {
    let fixed = columns::fixed(&table.target, &table.policy);
    let refused = columns::pair(&table.target, &table.source, &[], &fixed).refused();
    (!refused.is_empty()).then(|| format!("{}: {}", table.policy.table_name, refused.join("; ")))
}

/// Whether its target has other partitions than when its reverse split was installed: then they must be captured
/// before the cutover.
pub fn lacks_partitions(there: i64, tables: &[SplitTable]) -> Result<bool> {
    let Some(back) = arm::armed(there)? else { return Ok(false) };
    let Some(known) = stored_baseline(back.id, tables.len()) else { return Ok(false) };
    let mut both = known.tables.iter().zip(tables);
    Ok(!both.all(|(known, table)| {
        let leaves = table.target.leaves();
        known.leaves.len() == leaves.len()
            && leaves.iter().all(|leaf| known.leaves.iter().any(|known| known.oid == leaf.oid))
    }))
}

fn stored_baseline(id: i64, tables: usize) -> Option<CopyProgress> {
    transaction(|| reverse_split::baseline(id)).and_then(|json| CopyProgress::read(&json, tables).ok())
}

/// Begins a requested reverse split, like `install` for other splits. Returns false if it has ended, which this master
/// had lost.
pub fn begin(tenure: &Tenure, there: i64) -> Result<bool> {
    let plan = &tenure.plan;
    reach(injection_points::INSTALL_BEGIN)?;
    let mut source = tenure.open(Side::Source, "install")?;
    let mut target = tenure.open(Side::Target, "install")?;
    if side::installed(&mut source, plan, Side::Source)? != Installed::Ours {
        if recovery::adopt_finished(tenure)? {
            return Ok(false);
        }
        return Err(lost(plan, there, "it was restored to a time before its start"));
    }
    let installed = side::installed(&mut target, plan, Side::Target)?;
    if installed == Installed::Ours
        && progress::stored(&mut target, plan)?.is_some_and(|p| p.snapshot.is_some())
    {
        // The reverse split has begun, and this master has forgotten it.
        return Ok(true);
    }
    // What stops it is reported before anything is installed.
    require_frozen(tenure, there)?;
    check::require(plan, &tenure.identity)?;
    untrusted_code::require_none(&mut source, plan, Side::Source)?;
    untrusted_code::require_none(&mut target, plan, Side::Target)?;
    let tables = table::load(plan, &mut source, &mut target)?;
    let baseline = stored_baseline(plan.id, plan.tables.len())
        .ok_or_else(|| lost(plan, there, "this master no longer knows its tables' former columns"))?;
    require_same_keys(plan, there, &baseline, &tables)?;
    tenure.take_over(&mut source, Side::Source)?;
    install::guard_alone(&mut target, tenure, &tables)?;
    reach(injection_points::REVERSE_GUARDED)?;
    let on_source = seen::look(&mut source, plan, Side::Source)?;
    let on_target = seen::look(&mut target, plan, Side::Target)?;
    // This is checked once its side is installed: a source that is restored from now on loses that side, too.
    let frozen = require_frozen(tenure, there)?;
    let mut progress = arrived(baseline, &on_source, &on_target, &frozen.tables);
    progress.again = frozen.again;
    let shapes = on_target.tables.iter().zip(&frozen.tables);
    for (table, (shape, known)) in progress.tables.iter_mut().zip(shapes) {
        if !has_all_files(shape, known) {
            table.forget_copies();
        }
    }
    untrusted_code::reading(&mut target, plan, Side::Target, |target, _| {
        take_in(plan, &mut source, target, &tables, &mut progress)
    })?;
    progress::store_first(&mut target, plan.id, &progress)?;
    Ok(true)
}

/// Whether the partitions and their files are those of the cutover. A table that was truncated since, or has lost a
/// partition, does not have all of its rows, although no client was refused.
fn has_all_files(now: &TableShape, known: &TableProgress) -> bool {
    let is_there = |known: &LeafProgress| {
        let leaf = now.leaves().iter().find(|leaf| leaf.oid == known.oid);
        leaf.is_some_and(|leaf| leaf.filenode.as_deref() == Some(&known.filenode))
    };
    known.leaves.iter().all(is_there)
}

/// Requires that its queue has the keys of the cutover, by the columns that were the key.
fn require_same_keys(plan: &Plan, there: i64, baseline: &CopyProgress, tables: &[SplitTable]) -> Result<()> {
    for (known, table) in baseline.tables.iter().zip(tables) {
        let (now, by) = (table.source.structure(), &table.policy.shard_by);
        if known.structure != now && !table.source.keeps_key(&known.structure, by) {
            let why = format!("table {} has a different key since the cutover", table.source.name);
            let detail = format!("before: {}; now: {now}", known.structure);
            return Err(match lost(plan, there, &why) {
                SplitError::Failed(failure) => SplitError::Failed(failure.detail(detail)),
                other => other,
            });
        }
    }
    Ok(())
}

/// Adopts tables that have changed since the cutover, on either side, and are alike again: as during a split they
/// continue, or are copied anew if an earlier value may have changed.
fn take_in(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &[SplitTable],
    progress: &mut CopyProgress,
) -> Result<()> {
    let mut changed = Vec::new();
    for (table, known) in tables.iter().zip(&mut progress.tables) {
        let is_known = |before: &str, now: &TableShape| before.is_empty() || before == now.structure();
        if !is_known(&known.structure, &table.source) || !is_known(&known.target_structure, &table.target) {
            let effect = change_effect::of(plan, source, target, table, known)?;
            if effect.again.is_some() {
                known.forget_copies();
            }
            changed.push((&*table.source.name, effect));
        }
        known.adopt(&table.source, &table.target);
    }
    let told: Vec<(&str, &ChangeEffect)> = changed.iter().map(|(name, effect)| (*name, effect)).collect();
    transaction(|| {
        change_effect::told(&told).iter().for_each(|text| split::event(plan.id, None, None, text))
    });
    Ok(())
}

/// Returns the progress with everything copied, as far as the queue does not show otherwise. `there`: the tables as
/// the split has left them.
fn arrived(
    baseline: CopyProgress,
    on_source: &Observation,
    on_target: &Observation,
    there: &[TableProgress],
) -> CopyProgress {
    let shapes = on_source.tables.iter().zip(&on_target.tables);
    let known = baseline.tables.into_iter().zip(there).zip(shapes);
    let arrived = known.map(|((known, there), (from, to))| TableProgress {
        target_leaves: Some(leaves::of(to)),
        ..with_others(known, there, from)
    });
    let target_system = Some(on_target.system().to_owned());
    CopyProgress { target_system, tables: arrived.collect(), ..CopyProgress::default() }
}

/// Handles partitions that the reverse split does not know. One that was added before the cutover may have rows that
/// are on the other side, too: its table is copied anew. The split has written to none that was added later: of these
/// only the rows are copied.
fn with_others(mut known: TableProgress, there: &TableProgress, now: &TableShape) -> TableProgress {
    let is_new = |leaf: &Leaf| known.leaves.iter().all(|known| known.oid != leaf.oid);
    let is_of_split = |leaf: &Leaf| {
        there.target_leaves.as_ref().is_none_or(|leaves| leaves.iter().any(|known| known.oid == leaf.oid))
    };
    if now.leaves().iter().any(|leaf| is_new(leaf) && is_of_split(leaf)) {
        known.forget_copies();
    }
    known
}

/// What a split has left on its source, which has accepted no writes since.
struct Frozen {
    /// Why its rows are not those of the cutover all the same: then all of them are copied.
    again: Option<String>,
    /// Its tables as they were at the cutover.
    tables: Vec<TableProgress>,
}

/// Requires that the split's own shards confirm that its source has accepted no writes since the cutover.
fn require_frozen(tenure: &Tenure, there: i64) -> Result<Frozen> {
    let version = transaction(|| row::read(there))?.version_cutover.unwrap_or_default();
    let mut engine = Engine::attach(&arm::take(there, &tenure.identity)?)?;
    for (side, wanted) in [(Side::Source, SideState::Moved), (Side::Target, SideState::Open)] {
        let Engine { sessions: EngineSessions { control, target, .. }, tenure: Tenure { plan, .. }, .. } =
            &mut engine;
        let session = if side == Side::Source { control } else { target };
        if let Some(text) = side_state_check::difference(session, plan, side, wanted, version)? {
            // The split's own worker handles that.
            transaction(|| split_state::cutover::step(there, CutoverStep::Decided));
            return Err(SplitError::Retry(text));
        }
    }
    before::require_frozen(&engine.tenure.plan, &mut engine.sessions, &engine.tables)
        .map_err(|error| not_frozen(error, &tenure.plan, there))?;
    let stored = progress::stored(&mut engine.sessions.target, &engine.tenure.plan)?.unwrap_or_default();
    let counters = consumed::counters(&mut engine.sessions.control, there)?;
    let is_whole = counters.disagreement(stored.steps).is_none() && counters.announced == stored.steps;
    let shard = &engine.tenure.plan.source.shard_key;
    let again =
        (!is_whole).then(|| format!("shard \"{shard}\" was restored since the cutover of split {there}"));
    Ok(Frozen { again, tables: stored.tables })
}

fn not_frozen(error: SplitError, plan: &Plan, there: i64) -> SplitError {
    match error {
        SplitError::Failed(failure) => SplitError::Failed(failure.hint(format!(
            "Nothing was changed, because the writes on shard \"{}\" exist nowhere else. SELECT shard_split_rollback({}) leaves split {there} as it is, to be finished.",
            plan.target.shard_key, plan.id
        ))),
        other => other,
    }
}

fn lost(plan: &Plan, there: i64, why: &str) -> SplitError {
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "split {there} cannot be taken back without a copy: shard \"{}\": {why}",
            plan.source.shard_key
        ),
        format!(
            "SELECT shard_split_rollback({}), finish split {there}, and plan a split in the other direction.",
            plan.id
        ),
    )
}
