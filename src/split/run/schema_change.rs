//! Tables that changed while their rows move: columns that were added, dropped or changed to other types, constraints,
//! defaults. Invariant: what is copied is what would be copied in the shape that both sides have. So once the check
//! finds both sides alike again, a table that changed on either continues where it was if its change cannot have made
//! a copied row wrong, and is copied again if not; the others keep their progress. Its key stays the one that capture
//! and guard were installed for.

use crate::agent::error::{Result, SplitError};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::TableShape;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::progress::{self, CopyProgress, TableProgress};
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::server::txn::transaction;
use crate::split::copy::change_effect;
use crate::split::copy::change_effect::ChangeEffect;
use crate::split::copy::{apply_ddl, collision, partition_layout};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::{Engine, locks};
use crate::split::injection_points::{self, reach};
use crate::split::plan::check;
use crate::split::table::SplitTable;
use crate::split::{install, reverse, untrusted_code};

/// What happens to the copies of the tables that changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    GoesOn,
    CopiesAgain,
}

/// Adopts both sides as they are now, for a split that has stopped at a difference. Until they are alike the split
/// waits for that.
pub fn adopt(tenure: &Tenure, why: Failure) -> Result<Adopted> {
    // Whatever is waited for, changes continue to be queued.
    install::keep_lease(&tenure.plan)?;
    let mut engine = Engine::attach(tenure)?;
    let replays = transaction(|| split::replays_ddl(tenure.plan.id));
    let has_changed = replays && bring_over(&engine.tenure, &mut engine.sessions, &engine.tables, &why)?;
    if has_changed {
        engine = Engine::attach(tenure)?;
    }
    // This comes before the check, which reads whole tables.
    if let Some(table) = engine.tables.iter().find(|table| !table.differences.is_empty()) {
        return Err(SplitError::Reshaped(waits(why.clone(), Some(differs(table, &why)))));
    }
    check::require_again(&tenure.plan, &tenure.identity).map_err(|error| match error {
        SplitError::Failed(found) => SplitError::Reshaped(waits(why.clone(), found.detail)),
        other => other,
    })?;
    let id = engine.tenure.plan.id;
    let mut progress = hold(&engine.tenure, &mut engine.sessions, &mut engine.tables)?;
    let changed = take_in(&engine.tenure.plan, &mut engine.sessions, &engine.tables, &mut progress, &why)?;
    // The reverse split is renewed first: it counts from the cutover, which comes after this.
    reverse::renew(id, &engine.tables)?;
    progress::store(&mut engine.sessions.target, id, &progress)?;
    engine.sessions.target.run("COMMIT")?;
    reach(injection_points::RESHAPE_ADOPTED)?;
    transaction(|| tell(id, &engine.tables, &changed));
    if changed.is_empty() && !has_changed && why.sqlstate == SqlState::parse(collision::NO_PLACE) {
        // A row that the check has not found is gone by now, or is found again after a pause.
        return Err(SplitError::Retry(why.message));
    }
    Ok(if changed.iter().any(|(_, effect)| effect.again.is_some()) {
        Adopted::CopiesAgain
    } else {
        Adopted::GoesOn
    })
}

/// Describes how the sides of a table differ, and names the table if the change was seen in another one.
fn differs(table: &SplitTable, why: &Failure) -> String {
    let (name, differences) = (&table.source.name, table.differences.join("; "));
    if why.message.contains(&format!("table {name} ")) {
        differences
    } else {
        format!("table {name}: {differences}")
    }
}

/// Applies what the owner has done on the source to the target. Returns whether there was anything.
fn bring_over(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    why: &Failure,
) -> Result<bool> {
    let columns = apply_ddl::bring_over(tenure, &mut sessions.target, tables, why)?;
    let partitions = partition_layout::bring_over(tenure, sessions, tables, None)
        .map_err(|error| apply_ddl::refused(error, "partitions of the source", why))?;
    Ok(columns || partitions)
}

/// Locks both sides in the state that the check has found, as a step does.
fn hold(tenure: &Tenure, sessions: &mut EngineSessions, tables: &mut [SplitTable]) -> Result<CopyProgress> {
    locks::lock_source(&mut sessions.reader, tables)?;
    let on_source = seen::look(&mut sessions.reader, &tenure.plan, Side::Source)?;
    epoch::begin_as(&mut sessions.target, tenure.plan.id, Side::Target, tenure.generation)?;
    locks::lock_target(&mut sessions.target, tables)?;
    let on_target = seen::look(&mut sessions.target, &tenure.plan, Side::Target)?;
    untrusted_code::look_through(&mut sessions.target, &tenure.plan, Side::Target, on_target.code())?;
    let mut progress = progress::read_locked(&mut sessions.target, &tenure.plan)?;
    if progress.target_system.as_deref() != Some(on_target.system()) {
        // Names of files have no meaning on another server.
        let leaves = progress.tables.iter_mut().filter_map(|table| table.target_leaves.as_mut());
        leaves.flatten().for_each(|leaf| leaf.filenode = None);
    }
    let now = on_source.tables.into_iter().zip(on_target.tables);
    for (table, (source, target)) in tables.iter_mut().zip(now) {
        let is_checked = |one: &TableShape, other: &TableShape| one.structure() == other.structure();
        if !is_checked(&table.source, &source) || !is_checked(&table.target, &target) {
            return Err(SplitError::Retry(format!("table {} to remain unchanged", source.name)));
        }
        (table.source, table.target) = (source, target);
    }
    Ok(progress)
}

/// Adopts the tables, by position, that differ from those that their rows were copied from, or into: from now on they
/// are recorded as they are.
fn take_in(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    progress: &mut CopyProgress,
    why: &Failure,
) -> Result<Vec<(usize, ChangeEffect)>> {
    let EngineSessions { reader, target, .. } = sessions;
    let mut changed = Vec::new();
    for (position, (table, known)) in tables.iter().zip(&progress.tables).enumerate() {
        if is_another(table, known, why)? {
            changed.push((position, change_effect::of(plan, reader, target, table, known)?));
        }
    }
    for (position, effect) in &changed {
        let (table, known) = (&tables[*position], &mut progress.tables[*position]);
        known.adopt(&table.source, &table.target);
        if effect.again.is_some() {
            known.forget_copies();
        }
    }
    reader.run("COMMIT")?;
    Ok(changed)
}

fn is_another(table: &SplitTable, known: &TableProgress, why: &Failure) -> Result<bool> {
    let by = &table.policy.shard_by;
    let sides = [(&table.source, &known.structure), (&table.target, &known.target_structure)];
    let mut is_another = false;
    for (shape, before) in sides {
        if before.is_empty() || *before == shape.structure() {
            continue;
        }
        if !shape.keeps_key(before, by) {
            return Err(other_key(&shape.name, why.clone()));
        }
        is_another = true;
    }
    Ok(is_another)
}

fn tell(id: i64, tables: &[SplitTable], changed: &[(usize, ChangeEffect)]) {
    let named: Vec<(&str, &ChangeEffect)> =
        changed.iter().map(|(position, effect)| (&*tables[*position].source.name, effect)).collect();
    for text in change_effect::told(&named) {
        split::event(id, None, None, &text);
    }
}

fn waits(why: Failure, found: Option<String>) -> Failure {
    let why = match found {
        Some(found) => Failure { message: format!("{}: {found}", why.message), ..why },
        None => why,
    };
    why.hint(
        "Make both sides alike, or undo the change. Then the split continues automatically, and copies the table again if copied rows may be wrong.",
    )
}

/// Returns the error for another key. The queue and the triggers are made for the earlier key, so the earlier hint
/// still applies.
fn other_key(name: &str, why: Failure) -> SplitError {
    let text =
        format!("{}: {name} is another table, or has another primary key or shard-by column", why.message);
    SplitError::Failed(Failure { message: text, sqlstate: SqlState::NOT_IN_STATE, ..why })
}
