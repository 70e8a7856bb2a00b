//! What was seen of one side.

use super::functions::Called;
use crate::agent::error::{Result, SplitError};
use crate::agent::observe;
use crate::agent::reading::{self, LockedTables};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Observation, TableShape};
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::Connection;
use crate::split::owners;
use std::collections::BTreeSet;

/// What one side is: its tables, and how its server writes values.
pub struct LookedSide {
    /// With which it was looked at, and may be further: once it is held again.
    pub session: Connection,
    pub observation: Observation,
    /// What it calls that is not known to work.
    pub called: Vec<Called>,
    /// What is locked while it is held.
    pub locked: LockedTables,
    /// Whether a query over its tables runs nothing of somebody who is not trusted.
    pub is_trusted: bool,
}

/// Begins a transaction in which what is asked of a side's tables runs what is looked at now. Those that the mover may
/// not even read are not asked.
pub fn hold(session: &mut Connection, plan: &Plan, side: Side) -> Result<LockedTables> {
    let (schemas, names) = observe::table_names(plan, side);
    reading::begin(session, (&schemas, &names), guc::remote_timeout())
}

/// Without some tables, as if they were not there.
pub fn leave_out(observation: &mut Observation, closed: &BTreeSet<usize>) {
    for (position, shape) in observation.tables.iter_mut().enumerate() {
        if closed.contains(&position) {
            *shape = TableShape { name: std::mem::take(&mut shape.name), ..TableShape::default() };
        }
    }
}

impl LookedSide {
    /// The same once more, of a side where nothing was found before.
    pub fn hold(&mut self, plan: &Plan, side: Side) -> Result<()> {
        let locked = hold(&mut self.session, plan, side)?;
        let is_same = locked.closed.is_subset(&self.locked.closed)
            && locked.require_leaves("", &self.observation.tables).is_ok();
        self.locked = locked;
        if is_same {
            let now = seen::look(&mut self.session, plan, side)?;
            if owners::is_none(&mut self.session, plan, side, now.code())? {
                return Ok(());
            }
        }
        Err(SplitError::Retry(format!("tables of the {}, which have just changed", side.as_str())))
    }
}
