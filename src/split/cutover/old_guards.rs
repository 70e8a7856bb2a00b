//! Keys that return to a place that they had left: what refuses them there admits them, from the commit on that opens
//! the target for them. The namespace and the keyspace in the database itself identify the place, not the shard's
//! name. Releasing a key twice changes nothing. A key guard there admits what belongs there, and has it on its list by
//! the same commit.

use crate::agent::error::Result;
use crate::agent::state::key_guard::{self, KeyGuard};
use crate::agent::state::redirect::{self as redirects, Redirect};
use crate::agent::state::{scope, side};
use crate::catalog::redirect as stored;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::split::redirect;

/// What may refuse the split's keys on the target.
pub struct OldGuards {
    redirect: Option<Redirect>,
    /// Splits that have moved them away and are not finished, in the order in which all splits lock them.
    splits: Vec<i64>,
    standing: Option<KeyGuard>,
}

impl OldGuards {
    pub fn is_empty(&self) -> bool {
        self.redirect.is_none() && self.splits.is_empty() && self.standing.is_none()
    }
}

/// Reads them in one message, because clients wait.
pub fn find(target: &mut Connection, plan: &Plan) -> Result<OldGuards> {
    let splits = side::moved_away(plan, &plan.scope.strategy().entries());
    let message = format!("{}; {}; {splits}", redirects::ALL, key_guard::ALL);
    let (redirects, standing, splits) = match target.run_for_each(&message) {
        Ok(answers) => {
            let mut answers = answers.into_iter().chain(std::iter::repeat_with(Rows::default));
            let mut next = || answers.next().unwrap_or_default();
            (redirects::read(&next()), key_guard::read(&next()), next())
        }
        // An earlier version has installed the agent there.
        Err(error) if error.is(UNDEFINED_TABLE) => {
            (redirects::all(target)?, key_guard::all(target)?, target.run(&splits)?)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(chosen(plan, redirects, standing, &splits))
}

const UNDEFINED_TABLE: &str = "42P01";

/// The queries for them, to be sent with others, so that no client waits for them separately.
pub struct GuardQuestions {
    /// Whether both of the agent's tables that hold them exist.
    has_tables: bool,
}

/// SQL for the number of these tables that exist.
const TABLES: &str = "SELECT (to_regclass('shardmaster_agent.redirect') IS NOT NULL)::int
                           + (to_regclass('shardmaster_agent.standing') IS NOT NULL)::int";

impl GuardQuestions {
    pub fn prepare(target: &mut Connection) -> Result<GuardQuestions> {
        Ok(GuardQuestions { has_tables: target.run(TABLES)?.scalar() == Some("2") })
    }

    pub fn questions(&self, plan: &Plan) -> String {
        let splits = side::moved_away(plan, &plan.scope.strategy().entries());
        if self.has_tables {
            format!("{}; {}; {splits}", redirects::ALL, key_guard::ALL)
        } else {
            format!("{TABLES}; {splits}")
        }
    }

    /// Returns the number of answers.
    pub fn answers(&self) -> usize {
        if self.has_tables { 3 } else { 2 }
    }

    /// Reads the answers. Returns None if they must be read anew.
    pub fn read(&self, plan: &Plan, answers: &[Rows]) -> Option<OldGuards> {
        match answers {
            [redirects, standing, splits] if self.has_tables => {
                Some(chosen(plan, redirects::read(redirects), key_guard::read(standing), splits))
            }
            [tables, splits] if !self.has_tables && tables.scalar() == Some("0") => {
                Some(chosen(plan, Vec::new(), Vec::new(), splits))
            }
            _ => None,
        }
    }
}

fn chosen(plan: &Plan, redirects: Vec<Redirect>, standing: Vec<KeyGuard>, splits: &Rows) -> OldGuards {
    let (namespace, keyspace) = (&plan.target.namespace, &plan.keyspace);
    OldGuards {
        redirect: redirects::choose(redirects, namespace, keyspace, plan.scope.strategy()),
        splits: side::numbers(splits),
        standing: key_guard::choose(standing, namespace, keyspace),
    }
}

/// Removes the split's keys from them, in the target's open transaction.
pub fn release(target: &mut Connection, plan: &Plan, guards: &OldGuards) -> Result<()> {
    if let Some(redirect) = &guards.redirect {
        redirect::release(target, redirect, plan)?;
    }
    for split in &guards.splits {
        scope::release(target, *split, &plan.scope, &plan.entries)?;
    }
    match &guards.standing {
        Some(guard) => key_guard::add(target, guard, &plan.entries, plan.key_type),
        None => Ok(()),
    }
}

/// Removes them on the master as well, once the cutover has ended.
pub fn forget(plan: &Plan) {
    stored::came_back(&plan.keyspace, &plan.entries, &plan.target);
}
