//! The observation of one side by the check.

use super::functions::Called;
use crate::agent::error::{Result, SplitError};
use crate::agent::observed_side::ObservedSide;
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
    /// Its session may read more once its tables are locked again.
    pub side: ObservedSide,
    /// Functions that it calls and that are not known to work.
    pub called: Vec<Called>,
    /// Whether a query over its tables runs no code of untrusted roles.
    pub is_trusted: bool,
}

/// Begins a transaction in which queries over a side's tables run only code that is checked now. Tables that the mover
/// may not even read are not queried.
pub fn hold(session: &mut Connection, names: &TableNames) -> Result<LockedTables> {
    reading::begin(session, names, guc::remote_timeout())
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
        let ObservedSide { session, names, observation, locked: before } = &mut self.side;
        let locked = hold(session, names)?;
        let is_same =
            locked.closed.is_subset(&before.closed) && locked.require_leaves("", &observation.tables).is_ok();
        *before = locked;
        if is_same {
            let now = seen::look(session, plan, side)?;
            if untrusted_code::is_none(session, plan, side, now.code())? {
                return Ok(());
            }
        }
        Err(SplitError::Retry(format!("tables of the {}, which have just changed", side.as_str())))
    }
}
