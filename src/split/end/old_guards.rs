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
use crate::remote::result::Rows;

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

/// Asked in one message: clients wait.
pub fn find(target: &mut Connection, plan: &Plan) -> Result<OldGuards> {
    let splits = side::moved_away(plan, &plan.scope.strategy().entries());
    let (redirects, splits) = match target.run_for_each(&format!("{}; {splits}", redirects::ALL)) {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            (redirects::read(&answers.next().unwrap_or_default()), answers.next().unwrap_or_default())
        }
        // Nothing has ever left this database.
        Err(error) if error.is(UNDEFINED_TABLE) => (Vec::new(), target.run(&splits)?),
        Err(error) => return Err(error.into()),
    };
    Ok(chosen(plan, redirects, &splits))
}

const UNDEFINED_TABLE: &str = "42P01";

/// The same as questions that go with others, so that no client waits for them alone.
pub struct Asked {
    /// Whether this database has had a redirect.
    has_redirects: bool,
}

impl Asked {
    pub fn prepare(target: &mut Connection) -> Result<Asked> {
        let is_there = target.run(IS_THERE)?;
        Ok(Asked { has_redirects: is_there.scalar() == Some("t") })
    }

    /// Two of them.
    pub fn questions(&self, plan: &Plan) -> String {
        let redirects = if self.has_redirects { redirects::ALL } else { IS_THERE };
        format!("{redirects}; {}", side::moved_away(plan, &plan.scope.strategy().entries()))
    }

    /// None: they are to be looked for anew.
    pub fn read(&self, plan: &Plan, answers: &[Rows]) -> Option<OldGuards> {
        let [redirects, splits] = answers else { return None };
        let found = match self.has_redirects {
            true => redirects::read(redirects),
            false if redirects.scalar() == Some("f") => Vec::new(),
            false => return None,
        };
        Some(chosen(plan, found, splits))
    }
}

const IS_THERE: &str = "SELECT to_regclass('shardmaster_agent.redirect') IS NOT NULL";

fn chosen(plan: &Plan, redirects: Vec<Redirect>, splits: &Rows) -> OldGuards {
    let (namespace, keyspace) = (&plan.target.namespace, &plan.keyspace);
    OldGuards {
        redirect: redirects::choose(redirects, namespace, keyspace, plan.scope.strategy()),
        splits: side::numbers(splits),
    }
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
