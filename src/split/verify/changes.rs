//! What clients of the target have changed since it opened, as its guard has noted it: by these changes a row may
//! differ from the source's, which is frozen.

use crate::agent::error::Result;
use crate::agent::state::progress::CopyProgress;
use crate::agent::state::{changed, queue};
use crate::agent::{catalogs, shape};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, ident, literal, text_array};
use crate::remote::template::{fill, word};
use crate::split::table::SplitTable;

/// The log of one table's changes.
#[derive(Clone)]
pub struct Changes {
    /// The log's table on the target.
    pub log: String,
    /// The leaves that the target had when it opened.
    leaves: Vec<String>,
    /// The oid of the table that it opened. `None` if it was not noted.
    opened: Option<String>,
    /// Bounds of partitions that clients have emptied.
    emptied: Vec<String>,
}

const EMPTIED: &str = include_str!("../../../sql/agent/emptied.sql");

impl Changes {
    pub fn of(plan: &Plan, progress: &CopyProgress, table: &SplitTable, position: usize) -> Changes {
        let known = progress.tables.get(position);
        let leaves = known.and_then(|table| table.target_leaves.as_ref());
        Changes {
            log: changed::qualified(plan.id, table.policy.ordinal),
            leaves: leaves.into_iter().flatten().map(|leaf| leaf.oid.clone()).collect(),
            opened: known.and_then(|table| shape::oid_of(&table.target_structure)).map(str::to_owned),
            emptied: Vec::new(),
        }
    }

    /// Reads which partitions of the target clients have emptied: in the transaction, with the table locked, in which
    /// their rows are found missing.
    pub fn look(&mut self, plan: &Plan, target: &mut Connection, table: &SplitTable) -> Result<()> {
        if table.target.leaves().len() < 2 {
            return Ok(());
        }
        let query = fill(EMPTIED, &[("changed", word(changed::table(plan.id, table.policy.ordinal)))]);
        let key = text_array(table.target.key());
        let leaves = text_array(&self.leaves);
        let rows = catalogs::ask(target, &query, &[Some(&table.target.name), Some(&key), Some(&leaves)])?;
        self.emptied = rows.rows.into_iter().flatten().flatten().collect();
        Ok(())
    }

    /// Returns a condition that the target's table is the one that it opened. Another one of its name may lack rows
    /// for reasons that the log of the first one does not contain.
    pub fn are_of(&self, table: &SplitTable) -> String {
        match &self.opened {
            Some(oid) => format!("to_regclass({}) = {}::oid", literal(&table.target.name), literal(oid)),
            None => "true".to_owned(),
        }
    }

    /// Returns a condition that some changes were not noted, because the log was too long.
    pub fn are_incomplete(&self) -> String {
        format!("EXISTS (SELECT 1 FROM {} g WHERE g.k1 IS NULL AND g.op = 'O')", self.log)
    }

    /// Returns a condition that the row of a key `k` may be missing: it was deleted, was given another key, or was
    /// removed with all others of its partition, which has its earlier bound. If the key does not determine which
    /// partition that was, it counts if all were emptied, and none has left the table and perhaps returned with rows.
    pub fn explain_absence(&self, table: &SplitTable) -> String {
        format!(
            "({} AND (EXISTS (SELECT 1 FROM {log} g WHERE {} AND g.op <> 'C')
              OR {}
              OR coalesce((SELECT bool_and(EXISTS (SELECT 1 FROM {log} g WHERE g.k1 IS NULL AND g.op = 'T' AND g.leaf = l)
                                           AND to_regclass({name}) IN (SELECT l UNION ALL SELECT relid FROM pg_partition_ancestors(l)))
                             FROM unnest({}::oid[]) l), false)))",
            self.are_of(table),
            table.changed_join(),
            self.was_in_emptied(table),
            array_literal(&self.leaves),
            log = self.log,
            name = literal(&table.target.name),
        )
    }

    /// Returns a condition that the key `k` belongs to a partition that was emptied.
    fn was_in_emptied(&self, table: &SplitTable) -> String {
        if self.emptied.is_empty() {
            return "false".to_owned();
        }
        let named = queue::keys(&table.source)
            .iter()
            .zip(table.target.key())
            .map(|(key, column)| format!("k.{key} AS {}", ident(column)))
            .collect::<Vec<_>>();
        let bounds: Vec<String> = self.emptied.iter().map(|bound| format!("({bound})")).collect();
        format!("EXISTS (SELECT 1 FROM (SELECT {}) x WHERE {})", named.join(", "), bounds.join(" OR "))
    }

    /// Returns a condition that the row may be missing, or may have other values.
    pub fn explain(&self, plan: &Plan, table: &SplitTable) -> String {
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
