//! Changes since the check that do not change a table's columns, and would be noticed too late: a rule on a moving
//! table, which writes rows elsewhere; a sequence that was set or altered, so that both shards give out the same
//! number; and a function that takes values of keys from something that is not raised, like a table that counts. They
//! are searched before the cutover blocks writers.

use super::plan::check::{accepted, unique};
use super::sequences;
use super::sequences::survey::TableNumbers;
use super::table::SplitTable;
use crate::agent::error::{Result, SplitError};
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::remote::Connection;
use crate::remote::quote::array_of;
use crate::server::txn::transaction;
use crate::split::engine::sessions::EngineSessions;

/// Query for rules; $1: tables, by their numbers.
const RULE: &str = "SELECT pg_catalog.format('%s has rule %I', r.ev_class::regclass, r.rulename)
    FROM pg_catalog.pg_rewrite r WHERE r.ev_class = ANY ($1::oid[]) ORDER BY 1 LIMIT 1";

pub fn require_as_checked(plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let EngineSessions { control, target, .. } = sessions;
    let of_table = |table: &SplitTable| -> Vec<String> {
        let leaves = table.source.leaves().iter().map(|leaf| leaf.oid.clone());
        leaves.chain(table.source.oid.clone()).collect()
    };
    let oids: Vec<String> = tables.iter().flat_map(of_table).collect();
    let rules = control.query(RULE, &[Some(&array_of(oids.iter().map(|oid| Some(oid.as_str()))))])?;
    if let Some(rule) = rules.scalar() {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "shard \"{}\": {rule}, which was added since the check: rows may have been written elsewhere",
                plan.source.shard_key
            ),
            format!(
                "Drop it, and check where it has written rows of the moving keys. Then SELECT shard_split_resume({}) and call shard_split_cutover again.",
                plan.id
            ),
        ));
    }
    let shapes = [
        tables.iter().map(|table| &table.source).collect(),
        tables.iter().map(|table| &table.target).collect(),
    ];
    require_followed(plan, control, target, tables)?;
    match unique::since_check(plan, control, target, shapes)? {
        None => Ok(()),
        Some(found) => Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("{}, which the check had not found", found.detail),
            found.hint.unwrap_or_default(),
        )),
    }
}

/// Requires that sources of keys' values are known from the check, or accepted by the operator.
fn require_followed(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &[SplitTable],
) -> Result<()> {
    // A reverse split must stay possible.
    if plan.reverse_of.is_some() {
        return Ok(());
    }
    let plan = sequences::with_registered_now(plan);
    let mut found = sequences::check::again(&plan, source, target, &TableNumbers::of(tables))?;
    transaction(|| accepted::settle(plan.id, &mut found));
    let Some(new) = found.into_iter().find(|finding| !finding.ok) else { return Ok(()) };
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("{}, which the check had not found", new.detail),
        format!(
            "Undo on the source what has changed since. Then SELECT shard_split_resume({id}) and call shard_split_cutover again. Or SELECT shard_split_rollback({id}), because shard_split_accept accepts it only before a split begins.",
            id = plan.id
        ),
    ))
}
