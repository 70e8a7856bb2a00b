//! Foreign keys of the target that the server does not check for the mover: no step is committed that leaves a row of
//! the scope without the row that it references.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::is_gone;
use crate::agent::state::progress::CopyProgress;
use crate::catalog::split::Plan;
use crate::catalog::table_policy::Policy;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::copy::Bounds;
use crate::remote::quote::ident;
use crate::server::wait;
use crate::split::engine::{Engine, locks};
use crate::split::references::{Reference, WatchedReferences, keyless, moves};
use crate::split::untrusted_code;
use std::time::{Duration, Instant};

/// How long a step waits for a row of a reference table, and how often it checks.
const TO_FOLLOW: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Which rows of the scope a step checks.
pub enum RowsLook {
    All,
    /// Those that the windows of these tables (by position) have changed.
    Changed(Vec<usize>),
}

/// Checks, before a step is committed that leaves all of the scope's rows on the target, that none of them references
/// a missing row. A step that completes the copy checks all rows, a later one those that its windows have changed.
pub fn check_step(engine: &mut Engine, after: &CopyProgress, looked: &RowsLook) -> Result<()> {
    if engine.seen.watched.references.is_empty() || !after.is_copied() {
        return Ok(());
    }
    let Engine { tenure, sessions, tables, seen, .. } = engine;
    let (plan, target, watched) = (&tenure.plan, &mut sessions.target, &seen.watched);
    for reference in &watched.references {
        let Some(position) = reference.from_position else { continue };
        let is_own = |to: usize| reference.is_own && reference.to_position == Some(to);
        match looked {
            RowsLook::All => check_reference(plan, target, watched, reference, None)?,
            // The source does not keep these rows from losing what they reference, and they themselves do not change.
            RowsLook::Changed(changed) if changed.iter().any(|table| is_own(*table)) => {
                check_reference(plan, target, watched, reference, None)?;
            }
            RowsLook::Changed(changed) if changed.contains(&position) => {
                let rows = tables[position].changed_on_target();
                check_reference(plan, target, watched, reference, Some(&rows))?;
            }
            RowsLook::Changed(_) => {}
        }
    }
    Ok(())
}

/// Checks all rows once more before a cutover, by the foreign keys that exist now.
pub fn check_all(engine: &mut Engine) -> Result<()> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, .. } = engine;
    seen.watch(plan, sessions, tables)?;
    if seen.watched.references.is_empty() {
        return Ok(());
    }
    let locks = locks::target_locks_with_referenced(tables, &seen.watched);
    let locked = sessions.target.run(&format!("BEGIN; {locks}"));
    locked.map_err(|error| if is_gone(&error) { SplitError::renamed(&error) } else { error.into() })?;
    // A foreign key that was added since may reference tables that are not locked.
    let locked = seen.watched.referenced();
    seen.watch(plan, sessions, tables)?;
    if seen.watched.referenced() != locked {
        return Err(have_changed(&sessions.target));
    }
    untrusted_code::require_none(&mut sessions.target, plan, Side::Target)?;
    let (target, watched) = (&mut sessions.target, &seen.watched);
    for reference in watched.references.iter().filter(|reference| reference.from_position.is_some()) {
        check_reference(plan, target, watched, reference, None)?;
    }
    target.run("COMMIT")?;
    Ok(())
}

/// Returns the error if other tables than the locked ones are referenced now.
pub fn have_changed(target: &Connection) -> SplitError {
    SplitError::Retry(format!(
        "tables of shard \"{}\" that are referenced, which have just changed",
        target.shard()
    ))
}

/// Checks one foreign key. Referenced rows are locked first, as the server does: a session that deletes one at the
/// same time does not see the mover's rows yet.
fn check_reference(
    plan: &Plan,
    target: &mut Connection,
    watched: &WatchedReferences,
    reference: &Reference,
    rows: Option<&str>,
) -> Result<()> {
    let until = Instant::now() + TO_FOLLOW;
    loop {
        match find_missing(plan, target, watched, reference, rows)? {
            None => return Ok(()),
            Some(_) if is_to_follow(plan, reference) && Instant::now() < until => {
                wait::sleep(LOOK_AGAIN);
            }
            Some(value) => return Err(missing(plan, target, reference, &value)),
        }
    }
}

/// Returns a value whose referenced row is missing.
fn find_missing(
    plan: &Plan,
    target: &mut Connection,
    WatchedReferences { by, .. }: &WatchedReferences,
    reference: &Reference,
    rows: Option<&str>,
) -> Result<Option<String>> {
    let column = reference.from_position.and_then(|position| by.get(position)).and_then(Option::as_ref);
    let Some(column) = column else { return Ok(None) };
    let (rows, scope) = match rows {
        // The window's keys find these rows.
        Some(window) => (window, plan.scope.filter(column, "t")),
        None => ("", plan.scope.predicate(column, "t")),
    };
    let join = reference.join("p", "t");
    let moves = moves(plan, by, reference.to_position, "p");
    if reference.can_lock {
        let lock = format!(
            "SELECT count(*) FROM (
                SELECT 1 FROM {} p WHERE NOT {moves} AND EXISTS (SELECT 1 FROM {} t {rows} WHERE {scope} AND {join})
                   FOR KEY SHARE) locked",
            reference.to, reference.from
        );
        target.run_within(&lock, Bounds::unlimited().stall)?;
    }
    let query = format!(
        "SELECT {} FROM {} t {rows}
          WHERE {scope} AND {} AND NOT EXISTS (SELECT 1 FROM {} p WHERE {join} AND {}) LIMIT 1",
        reference.value("t"),
        reference.from,
        reference.references("t"),
        reference.to,
        is_common(by, reference.to_position, &moves)
    );
    let rows = target.run_within(&query, Bounds::unlimited().stall)?;
    Ok(rows.scalar().map(str::to_owned))
}

/// Whether a reference table is referenced: the row was on its origin before the row that references it was on the
/// source.
fn is_to_follow(plan: &Plan, reference: &Reference) -> bool {
    let table = keyless(plan, Side::Target, reference);
    table.is_some_and(|table| table.policy == Policy::Reference)
}

fn missing(plan: &Plan, target: &Connection, reference: &Reference, value: &str) -> SplitError {
    let text = format!(
        "a moving row references a row that is not on shard \"{}\": {}",
        target.shard(),
        reference.text(value)
    );
    if is_to_follow(plan, reference) {
        // The reference table's worker may also report the cause.
        return SplitError::Retry(format!("a reference table to follow: {text}"));
    }
    SplitError::Failed(
        Failure::new(SqlState::parse("23503"), text)
            .hint("Write the referenced row to the target, or change the referencing row on the source. Then resume the split with the call that it stopped in."),
    )
}

/// Returns the condition for rows of a referenced table that count: those that move too, or that belong to no key and
/// so are on every shard. Another key's row of the same value is another row.
fn is_common(by: &[Option<Column>], position: Option<usize>, moves: &str) -> String {
    match position.and_then(|position| by.get(position)).and_then(Option::as_ref) {
        None => "true".to_owned(),
        Some(column) => format!("(p.{} IS NULL OR {moves})", ident(&column.name)),
    }
}
