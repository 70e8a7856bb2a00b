//! What clients of the target have changed since it opened, as its guard has noted it: by that
//! a row may differ from the source's, which is frozen.

use crate::agent::state::changed;
use crate::agent::state::progress::Progress;
use crate::catalog::split::Plan;
use crate::remote::quote::array_literal;
use crate::split::table::Table;

/// The log of one table's changes.
pub struct Changes {
    /// Its table on the target.
    pub log: String,
    /// The leaves that the target had when it opened.
    leaves: Vec<String>,
}

impl Changes {
    pub fn of(plan: &Plan, progress: &Progress, table: &Table, position: usize) -> Changes {
        let known = progress.tables.get(position).and_then(|table| table.target_leaves.as_ref());
        Changes {
            log: changed::qualified(plan.id, table.policy.ordinal),
            leaves: known.into_iter().flatten().map(|leaf| leaf.oid.clone()).collect(),
        }
    }

    /// Whether some changes were not noted: the log was too long.
    pub fn are_incomplete(&self) -> String {
        format!("EXISTS (SELECT 1 FROM {} g WHERE g.k1 IS NULL AND g.op = 'O')", self.log)
    }

    /// The row of a key `k` may be missing: it was deleted, was given another key, or went with
    /// all others. Which leaf it was in the source does not tell: it counts if all were emptied.
    pub fn explain_absence(&self, table: &Table) -> String {
        format!(
            "(EXISTS (SELECT 1 FROM {log} g WHERE {} AND g.op <> 'C')
              OR coalesce((SELECT bool_and(EXISTS (SELECT 1 FROM {log} g WHERE g.op = 'T' AND g.leaf = l))
                             FROM unnest({}::oid[]) l), false))",
            table.changed_join(),
            array_literal(&self.leaves),
            log = self.log
        )
    }

    /// It may be missing, or is there and may have other values.
    pub fn explain(&self, plan: &Plan, table: &Table) -> String {
        format!(
            "({} OR EXISTS (SELECT 1 FROM {} g WHERE {})
                AND EXISTS (SELECT 1 FROM {} t WHERE {} AND {}))",
            self.explain_absence(table),
            self.log,
            table.changed_join(),
            table.target_only(),
            table.target_join(),
            plan.scope.filter(&table.target_by, "t")
        )
    }
}
