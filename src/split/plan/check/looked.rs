//! What was seen of one side.

use super::functions::Called;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::shape::Observation;
use crate::agent::{observe, reading};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::owners;

/// What one side is: its tables, and how its server writes values.
pub struct Looked {
    /// With which it was looked at, and may be further: once it is held again.
    pub session: Connection,
    pub observation: Observation,
    pub version: i32,
    /// As sessions get it that say nothing of it.
    pub lc_monetary: String,
    /// What it calls that is not known to work.
    pub called: Vec<Called>,
    /// Whether a query over its tables runs nothing of somebody who is not trusted.
    pub is_trusted: bool,
}

/// Begins a transaction in which what is asked of a side's tables runs what is looked at now. False: the mover may
/// not even read them, which is a finding of its own.
pub fn hold(session: &mut Connection, plan: &Plan, side: Side) -> Result<bool> {
    let (schemas, names) = observe::table_names(plan, side);
    match reading::begin(session, (&schemas, &names)) {
        Ok(()) => Ok(true),
        Err(SplitError::Remote(error)) if error.is("42501") => {
            session.run("BEGIN")?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Looked {
    /// The same once more, of a side where nothing was found before.
    pub fn hold(&mut self, plan: &Plan, side: Side) -> Result<()> {
        let changed =
            || SplitError::Retry(format!("tables of the {}, which have just changed", side.as_str()));
        match hold(&mut self.session, plan, side)? {
            true if owners::find(&mut self.session, plan, side)?.code.is_empty() => Ok(()),
            _ => Err(changed()),
        }
    }
}
