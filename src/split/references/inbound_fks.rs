//! References to rows that finish or a rollback is about to delete.

use crate::agent::blocks::LeafRows;
use crate::agent::error::{Result, SplitError};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::split::references::{InboundFk, Reference, columns_of, found, load, moves};
use std::collections::BTreeSet;

/// The foreign keys of a side by which rows that stay may reference rows that finish or a rollback deletes, checked
/// batch by batch: a client may add such a row meanwhile, and the owner of a table may rename it.
#[derive(Clone)]
pub struct InboundFks {
    pub side: Side,
    by: Vec<Option<Column>>,
    /// The plan's tables by name and number, as finish has found them.
    tables: (Vec<String>, Vec<String>),
}

impl InboundFks {
    pub fn load(connection: &mut Connection, plan: &Plan, side: Side) -> Result<InboundFks> {
        let now = seen::look(connection, plan, side)?;
        let known = now.tables.iter().filter_map(|shape| Some((shape.name.clone(), shape.oid.clone()?)));
        Ok(InboundFks { side, by: columns_of(plan, &now.tables), tables: known.unzip() })
    }

    /// Whether the names of all tables still have their meaning: they also determine which tables reference which.
    pub fn are_the_same(&self, connection: &mut Connection) -> Result<bool> {
        Ok(connection.run(&self.still())?.is_true())
    }

    /// Returns the query for that, to be sent with others.
    pub fn still(&self) -> String {
        let (names, oids) = &self.tables;
        format!(
            "SELECT coalesce(bool_and(coalesce(to_regclass(u.name)::oid = u.oid, false)), true)
               FROM unnest({}::text[], {}::oid[]) u (name, oid)",
            literal(&text_array(names)),
            literal(&text_array(oids))
        )
    }

    /// Returns the tables whose rows may reference those of some tables.
    pub fn beside(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        positions: &[usize],
    ) -> Result<ReferencingTables> {
        Ok(ReferencingTables::of(&load(connection, plan, self.side)?, positions))
    }

    /// Finds references in the transaction that is about to delete the rows `t` of a leaf. The rows are locked first,
    /// so that no new reference is added; then there must be none.
    pub fn find(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        position: usize,
        beside: &ReferencingTables,
        rows: LeafRows<'_>,
    ) -> Result<Option<InboundFk>> {
        let mut references = load(connection, plan, self.side)?;
        references.retain(|reference| !reference.is_period && reference.to_position == Some(position));
        // Code of a table that was not checked under its lock is not run.
        for reference in &references {
            reference.require_readable(connection.shard())?;
        }
        if let Some(new) = references.iter().find(|reference| !beside.readable.contains(&reference.from)) {
            let text = format!("a foreign key of {} that was just added", new.from);
            connection.run("ROLLBACK")?;
            return Err(SplitError::Retry(text));
        }
        if references.is_empty() {
            return Ok(None);
        }
        connection.run(&lock_rows(rows))?;
        for reference in &references {
            let query = self.staying(plan, reference, rows);
            if let Some(inbound_fk) = found(connection, reference, &query)? {
                return Ok(Some(inbound_fk));
            }
        }
        Ok(None)
    }

    /// Returns the statements by which `find` searches references to the rows `t` of a leaf: a row of any but the
    /// first is in the way.
    pub fn questions(&self, plan: &Plan, references: &[&Reference], rows: LeafRows<'_>) -> Vec<String> {
        let staying = references.iter().map(|reference| self.staying(plan, reference, rows));
        std::iter::once(lock_rows(rows)).chain(staying).collect()
    }

    /// Returns a query for a row that stays and references one of the rows `t` of a leaf.
    fn staying(&self, plan: &Plan, reference: &Reference, rows: LeafRows<'_>) -> String {
        let LeafRows { leaf, condition } = rows;
        format!(
            "SELECT {} FROM ONLY {leaf} t JOIN {} r ON {} WHERE {condition} AND NOT {} LIMIT 1",
            reference.value("r"),
            reference.from,
            reference.join("t", "r"),
            moves(plan, &self.by, reference.from_position, "r")
        )
    }
}

/// The tables whose rows may reference those of some others: the query for such rows runs their code.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReferencingTables {
    /// Positions among the plan's tables, including the referenced ones, in order.
    pub positions: Vec<usize>,
    /// The names, qualified and quoted, including tables outside of the plan.
    names: BTreeSet<String>,
    /// Those of them that may be read.
    readable: BTreeSet<String>,
}

impl ReferencingTables {
    pub fn of(references: &[Reference], positions: &[usize]) -> ReferencingTables {
        let is_to_them = |reference: &&Reference| {
            !reference.is_period && reference.to_position.is_some_and(|to| positions.contains(&to))
        };
        let mut beside = ReferencingTables { positions: positions.to_vec(), ..ReferencingTables::default() };
        for reference in references.iter().filter(is_to_them) {
            beside.positions.extend(reference.from_position);
            beside.names.insert(reference.from.clone());
            if reference.can_read {
                beside.readable.insert(reference.from.clone());
            }
        }
        beside.positions.sort_unstable();
        beside.positions.dedup();
        beside
    }

    /// Returns the statement that locks them against changes until the transaction ends, for use before they are
    /// checked.
    pub fn lock(&self) -> String {
        if self.readable.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = self.readable.iter().map(String::as_str).collect();
        format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", "))
    }
}

/// Returns the statement that locks rows, so that no new reference to them is added.
fn lock_rows(rows: LeafRows<'_>) -> String {
    format!("SELECT count(*) FROM (SELECT 1 FROM {rows} FOR UPDATE) locked")
}
