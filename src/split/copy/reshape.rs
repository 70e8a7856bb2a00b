//! Tables that changed while their rows move: columns that came, went or have other types,
//! constraints, defaults. Invariant: what is copied was copied in one shape of both sides. So once the
//! check finds both sides alike again, a table that changed on either is copied anew; the others
//! stay as far as they are. Its key stays what capture and guard were installed for.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::progress::{self, TableProgress};
use crate::agent::state::tenure::{self, Tenure};
use crate::catalog::split;
use crate::error::{Failure, SqlState};
use crate::server::txn::transaction;
use crate::split::engine::Engine;
use crate::split::injection_points::{self, reach};
use crate::split::install;
use crate::split::plan::check;
use crate::split::table::Table;

/// Takes both sides as they are now, for a split that has stopped at a difference. Until they
/// are alike that is what it waits for.
pub fn adopt(tenure: &Tenure, why: Failure) -> Result<()> {
    // Whatever is waited for, changes go on being queued.
    install::keep_lease(&tenure.plan)?;
    let mut engine = Engine::attach(tenure)?;
    // Before the check, which looks through whole tables.
    if let Some(table) = engine.tables.iter().find(|table| !table.differences.is_empty()) {
        return Err(SplitError::Reshaped(waits(why, Some(table.differences.join("; ")))));
    }
    check::require(&tenure.plan, &tenure.identity).map_err(|error| match error {
        SplitError::Failed(found) => SplitError::Reshaped(waits(why.clone(), found.detail)),
        other => other,
    })?;
    let (id, generation) = (engine.plan.id, engine.generation);
    tenure::begin_as(&mut engine.target, id, Side::Target, generation)?;
    let mut progress = progress::read_locked(&mut engine.target, &engine.plan)?;
    let mut changed = Vec::new();
    for (table, known) in engine.tables.iter().zip(&mut progress.tables) {
        if take_in(table, known, &why)? {
            changed.push(table.source.name.as_str());
        }
    }
    progress::store(&mut engine.target, id, &progress)?;
    engine.target.run("COMMIT")?;
    reach(injection_points::RESHAPE_ADOPTED)?;
    if !changed.is_empty() {
        let text = format!("tables changed, and both sides are alike: copied again: {}", changed.join(", "));
        transaction(|| split::event(id, None, None, &text));
    }
    Ok(())
}

/// Whether the table is another one than its rows were copied from, or into.
fn take_in(table: &Table, known: &mut TableProgress, why: &Failure) -> Result<bool> {
    let by = &table.policy.shard_by;
    let sides = [(&table.source, &mut known.structure), (&table.target, &mut known.target_structure)];
    let mut is_another = false;
    for (shape, before) in sides {
        let now = shape.structure();
        if before.is_empty() || *before == now {
            continue;
        }
        if !shape.keeps_key(before, by) {
            return Err(other_key(&shape.name, why.clone()));
        }
        *before = now;
        is_another = true;
    }
    if is_another {
        // No file has that name: the next step deletes what is there and begins anew.
        known.leaves.iter_mut().for_each(|leaf| leaf.filenode.clear());
    }
    Ok(is_another)
}

fn waits(why: Failure, found: Option<String>) -> Failure {
    let why = match found {
        Some(found) => Failure { message: format!("{}: {found}", why.message), ..why },
        None => why,
    };
    why.hint(
        "Make both sides alike, or undo the change: the split goes on by itself, and copies the table again.",
    )
}

/// Its queue and its triggers are made for the key that it had: what helps is what helped before.
fn other_key(name: &str, why: Failure) -> SplitError {
    let text =
        format!("{}: {name} is another table, or has another primary key or sharding column", why.message);
    SplitError::Failed(Failure { message: text, sqlstate: SqlState::NOT_IN_STATE, ..why })
}
