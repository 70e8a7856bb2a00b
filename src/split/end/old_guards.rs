//! Keys that come back to where they had left: what refuses them there lets them in, from
//! the commit on that opens the target for them. What counts is the namespace and the
//! keyspace in the database itself, not what the shard is called. What is released twice is
//! gone already.

use super::redirect;
use crate::agent::error::Result;
use crate::agent::state::redirect::{self as redirects, Redirect};
use crate::agent::state::{scope, side};
use crate::catalog::redirect as stored;
use crate::catalog::split::Plan;
use crate::remote::Connection;

/// What may refuse the split's keys on the target.
pub struct OldGuards {
    redirect: Option<Redirect>,
    /// Splits that have moved them away and are not finished, in the order in which all
    /// splits lock them.
    splits: Vec<i64>,
}

impl OldGuards {
    pub fn is_empty(&self) -> bool {
        self.redirect.is_none() && self.splits.is_empty()
    }
}

pub fn find(target: &mut Connection, plan: &Plan) -> Result<OldGuards> {
    let entries = plan.scope.strategy();
    let (namespace, keyspace) = (&plan.target.namespace, &plan.keyspace);
    let redirect = redirects::find(target, namespace, keyspace, entries)?;
    let splits = side::moved_away(target, plan, &entries.entries())?;
    Ok(OldGuards { redirect, splits })
}

/// Takes the split's keys out of them, in the target's open transaction.
pub fn release(target: &mut Connection, plan: &Plan, guards: &OldGuards) -> Result<()> {
    if let Some(redirect) = &guards.redirect {
        redirect::release(target, redirect, plan)?;
    }
    for split in &guards.splits {
        scope::release(target, *split, &plan.scope, &plan.entries)?;
    }
    Ok(())
}

/// Tells the master as well, once the cutover has ended.
pub fn forget(plan: &Plan) {
    stored::came_back(&plan.keyspace, &plan.entries, &plan.target);
}
