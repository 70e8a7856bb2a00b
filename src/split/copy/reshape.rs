//! Tables that changed while their rows move: columns that came, went or have other types,
//! constraints, defaults. Invariant: what is copied is what would be copied in the shape that both
//! sides have. So once the check finds both sides alike again, a table that changed on either goes on
//! where it was if its change cannot have made a copied row wrong, and is copied anew if not; the
//! others stay as far as they are. Its key stays what capture and guard were installed for.

use super::harmless::{Change, Looks};
use super::replay;
use super::step;
use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::agent::known_column;
use crate::agent::observe;
use crate::agent::session::Side;
use crate::agent::shape::TableShape;
use crate::agent::state::progress::{self, Progress, TableProgress};
use crate::agent::state::tenure::{self, Tenure};
use crate::catalog::split;
use crate::error::{Failure, SqlState};
use crate::remote::quote::{ident, text_array};
use crate::server::txn::transaction;
use crate::split::engine::Engine;
use crate::split::injection_points::{self, reach};
use crate::split::install;
use crate::split::plan::check;
use crate::split::reverse;
use crate::split::table::Table;

const OLD_ROWS: &str = include_str!("../../../sql/agent/old_rows.sql");

/// What becomes of the copies of the tables that changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    GoesOn,
    CopiesAgain,
}

/// A table that changed, in words, and why it is copied again; None: it goes on.
struct Changed {
    position: usize,
    words: Vec<String>,
    again: Option<String>,
}

/// Takes both sides as they are now, for a split that has stopped at a difference. Until they
/// are alike that is what it waits for.
pub fn adopt(tenure: &Tenure, why: Failure) -> Result<Adopted> {
    // Whatever is waited for, changes go on being queued.
    install::keep_lease(&tenure.plan)?;
    let mut engine = Engine::attach(tenure)?;
    let replays = transaction(|| split::replays_ddl(tenure.plan.id));
    if replays && replay::bring_over(&mut engine, &why)? {
        engine = Engine::attach(tenure)?;
    }
    // Before the check, which looks through whole tables.
    if let Some(table) = engine.tables.iter().find(|table| !table.differences.is_empty()) {
        return Err(SplitError::Reshaped(waits(why, Some(table.differences.join("; ")))));
    }
    check::require(&tenure.plan, &tenure.identity).map_err(|error| match error {
        SplitError::Failed(found) => SplitError::Reshaped(waits(why.clone(), found.detail)),
        other => other,
    })?;
    let id = engine.plan.id;
    let mut progress = hold(&mut engine)?;
    let changed = take_in(&mut engine, &mut progress, &why)?;
    // What it is to be taken back by, first: it counts from the cutover, which this comes before.
    reverse::renew(id, &engine.tables)?;
    progress::store(&mut engine.target, id, &progress)?;
    engine.target.run("COMMIT")?;
    reach(injection_points::RESHAPE_ADOPTED)?;
    transaction(|| tell(id, &engine.tables, &changed));
    Ok(match changed.iter().any(|table| table.again.is_some()) {
        true => Adopted::CopiesAgain,
        false => Adopted::GoesOn,
    })
}

/// Both sides are kept as the check has found them, as a step keeps them.
fn hold(engine: &mut Engine) -> Result<Progress> {
    step::lock_source(engine)?;
    let on_source = observe::observe(&mut engine.reader, &engine.plan, Side::Source)?;
    tenure::begin_as(&mut engine.target, engine.plan.id, Side::Target, engine.generation)?;
    step::lock_target(engine)?;
    let on_target = observe::observe(&mut engine.target, &engine.plan, Side::Target)?;
    engine.looked_through.require_none(&mut engine.target, &engine.plan, Side::Target, on_target.code())?;
    let mut progress = progress::read_locked(&mut engine.target, &engine.plan)?;
    if progress.target_system.as_deref() != Some(on_target.system()) {
        // Names of files mean nothing on another server.
        let leaves = progress.tables.iter_mut().filter_map(|table| table.target_leaves.as_mut());
        leaves.flatten().for_each(|leaf| leaf.filenode = None);
    }
    let now = on_source.tables.into_iter().zip(on_target.tables);
    for (table, (source, target)) in engine.tables.iter_mut().zip(now) {
        let is_checked = |one: &TableShape, other: &TableShape| one.structure() == other.structure();
        if !is_checked(&table.source, &source) || !is_checked(&table.target, &target) {
            return Err(SplitError::Retry(format!("table {} to stay as it is", source.name)));
        }
        (table.source, table.target) = (source, target);
    }
    Ok(progress)
}

/// The tables that are others than their rows were copied from, or into: from now on they are
/// known as they are.
fn take_in(engine: &mut Engine, progress: &mut Progress, why: &Failure) -> Result<Vec<Changed>> {
    let mut judged = Vec::new();
    for (position, (table, known)) in engine.tables.iter().zip(&progress.tables).enumerate() {
        if is_another(table, known, why)? {
            let (source, target) = (&table.source, &table.target);
            let change = Change { known, source, target, maps: &table.policy.maps };
            judged.push((position, change.words(), change.judge()));
        }
    }
    let mut changed = Vec::new();
    for (position, words, judgement) in judged {
        let again = match judgement {
            Ok(looks) => find_values(engine, position, &looks)?,
            Err(why) => Some(why),
        };
        let (table, known) = (&engine.tables[position], &mut progress.tables[position]);
        known.structure = table.source.structure();
        known.target_structure = table.target.structure();
        known.columns = Some(known_column::of(&table.source));
        known.target_columns = Some(known_column::of(&table.target));
        if again.is_some() {
            // No file has that name: the next step deletes what is there and begins anew.
            known.leaves.iter_mut().for_each(|leaf| leaf.filenode.clear());
        }
        changed.push(Changed { position, words, again });
    }
    engine.reader.run("COMMIT")?;
    Ok(changed)
}

fn is_another(table: &Table, known: &TableProgress, why: &Failure) -> Result<bool> {
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

/// What rows of before have in columns that are to be NULL in them; None: nothing.
fn find_values(engine: &mut Engine, position: usize, looks: &Looks) -> Result<Option<String>> {
    let Engine { plan, reader, target, tables, .. } = engine;
    let table = &tables[position];
    for (session, shape, new) in
        [(reader, &table.source, &looks.new_on_source), (&mut *target, &table.target, &looks.new_on_target)]
    {
        if new.is_empty() {
            continue;
        }
        let leaves: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
        let found = catalogs::ask(session, OLD_ROWS, &[Some(&text_array(&leaves)), Some(&text_array(new))])?;
        if let Some(column) = found.scalar() {
            return Ok(Some(format!("rows of before have a default in column \"{column}\"")));
        }
    }
    if looks.empty.is_empty() {
        return Ok(None);
    }
    let columns: Vec<String> = looks.empty.iter().map(|name| format!("t.{}", ident(name))).collect();
    let found = target.run_unbounded(&format!(
        "SELECT 1 FROM {} t WHERE {} AND pg_catalog.num_nonnulls({}) > 0 LIMIT 1",
        table.target_only(),
        plan.scope.predicate(&table.target_by, "t"),
        columns.join(", ")
    ))?;
    let text = format!("rows on the target have values in column \"{}\"", looks.empty.join("\", \""));
    Ok(found.scalar().map(|_| text))
}

fn tell(id: i64, tables: &[Table], changed: &[Changed]) {
    let name = |table: &Changed| &tables[table.position].source.name;
    let again = changed.iter().filter_map(|table| {
        table.again.as_ref().map(|why| format!("{} ({}: {why})", name(table), table.words.join(", ")))
    });
    let again: Vec<String> = again.collect();
    if !again.is_empty() {
        let text = format!("tables changed, and both sides are alike: copied again: {}", again.join("; "));
        split::event(id, None, None, &text);
    }
    let on = changed.iter().filter(|table| table.again.is_none());
    let on: Vec<String> = on.map(|table| format!("{} ({})", name(table), table.words.join(", "))).collect();
    if !on.is_empty() {
        let text = format!(
            "tables changed, and both sides are alike: they go on where they were: {}",
            on.join("; ")
        );
        split::event(id, None, None, &text);
    }
}

fn waits(why: Failure, found: Option<String>) -> Failure {
    let why = match found {
        Some(found) => Failure { message: format!("{}: {found}", why.message), ..why },
        None => why,
    };
    why.hint(
        "Make both sides alike, or undo the change: the split goes on by itself, and copies the table again where copied rows may be wrong.",
    )
}

/// Its queue and its triggers are made for the key that it had: what helps is what helped before.
fn other_key(name: &str, why: Failure) -> SplitError {
    let text =
        format!("{}: {name} is another table, or has another primary key or sharding column", why.message);
    SplitError::Failed(Failure { message: text, sqlstate: SqlState::NOT_IN_STATE, ..why })
}
