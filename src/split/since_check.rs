//! What may have come since the check, is no change of a table's columns, and would be known too late: a rule on a moving table, which puts
//! rows elsewhere, and a sequence that was set or altered, so that both shards give out the same number. Asked before the cutover
//! keeps anybody waiting.

use super::engine::Engine;
use super::plan::check::unique;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::remote::quote::array_of;

/// $1: tables, by their numbers.
const RULE: &str = "SELECT pg_catalog.format('%s has rule %I', r.ev_class::regclass, r.rulename)
    FROM pg_catalog.pg_rewrite r WHERE r.ev_class = ANY ($1::oid[]) ORDER BY 1 LIMIT 1";

pub fn require_as_checked(engine: &mut Engine) -> Result<()> {
    let Engine { plan, control, target, tables, .. } = engine;
    let of_table = |table: &super::table::Table| -> Vec<String> {
        let leaves = table.source.leaves().iter().map(|leaf| leaf.oid.clone());
        leaves.chain(table.source.oid.clone()).collect()
    };
    let oids: Vec<String> = tables.iter().flat_map(of_table).collect();
    let rules = control.query(RULE, &[Some(&array_of(oids.iter().map(|oid| Some(oid.as_str()))))])?;
    if let Some(rule) = rules.scalar() {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "shard \"{}\": {rule}, which has come since the check: rows may have gone elsewhere",
                plan.source.shard_key
            ),
            format!(
                "Drop it and look where it has put rows of the moving keys; then SELECT shard_split_resume({}) and call shard_split_cutover again.",
                plan.id
            ),
        ));
    }
    let (ours, theirs) = (
        tables.iter().map(|table| &table.source).collect(),
        tables.iter().map(|table| &table.target).collect(),
    );
    match unique::since_check(plan, (control, ours), (target, theirs))? {
        None => Ok(()),
        Some(found) => Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("{}, which the check had not found", found.detail),
            found.hint.unwrap_or_default(),
        )),
    }
}
