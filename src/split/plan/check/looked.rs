//! The observation of one side by the check.

use super::functions::Called;
use crate::agent::error::{Result, SplitError};
use crate::agent::reading::{self, LockedTables};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Observation, TableShape};
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::Connection;
use crate::split::untrusted_code;
use std::collections::BTreeSet;

/// One side: its tables, and how its server writes values.
pub struct LookedSide {
    /// The session that has read the side; it may read more once its tables are locked again.
    pub session: Connection,
    pub observation: Observation,
    /// Functions that it calls and that are not known to work.
    pub called: Vec<Called>,
    /// The tables that are locked.
    pub locked: LockedTables,
    /// Whether a query over its tables runs no code of untrusted roles.
    pub is_trusted: bool,
}

/// Begins a transaction in which queries over a side's tables run only code that is checked now. Tables that the mover
/// may not even read are not queried.
pub fn hold(session: &mut Connection, plan: &Plan, side: Side) -> Result<LockedTables> {
    reading::begin(session, &TableNames::of(plan, side), guc::remote_timeout())
}

/// Removes some tables from an observation, as if they did not exist.
pub fn leave_out(observation: &mut Observation, closed: &BTreeSet<usize>) {
    for (position, shape) in observation.tables.iter_mut().enumerate() {
        if closed.contains(&position) {
            *shape = TableShape { name: std::mem::take(&mut shape.name), ..TableShape::default() };
        }
    }
}

impl LookedSide {
    /// Locks the tables once more, for a side without findings before.
    pub fn hold(&mut self, plan: &Plan, side: Side) -> Result<()> {
        let locked = hold(&mut self.session, plan, side)?;
        let is_same = locked.closed.is_subset(&self.locked.closed)
            && locked.require_leaves("", &self.observation.tables).is_ok();
        self.locked = locked;
        if is_same {
            let now = seen::look(&mut self.session, plan, side)?;
            if untrusted_code::is_none(&mut self.session, plan, side, now.code())? {
                return Ok(());
            }
        }
        Err(SplitError::Retry(format!("tables of the {}, which have just changed", side.as_str())))
    }
}
