//! Keys that return to a place that they had left: what refuses them there admits them, from the commit on that opens
//! the target for them. The namespace and the keyspace in the database itself identify the place, not the shard's
//! name. Releasing a key twice changes nothing. A key guard there admits what belongs there, and has it on its list by
//! the same commit.

use crate::agent::error::Result;
use crate::agent::key_guard;
use crate::agent::state::key_list::{self, KeyList, ListTables};
use crate::agent::state::{scope, side};
use crate::catalog::redirect as stored;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::split::redirect;

/// What may refuse the split's keys on the target.
pub struct OldGuards {
    redirect: Option<KeyList>,
    /// Splits that have moved them away and are not finished, in the order in which all splits lock them.
    splits: Vec<i64>,
    key_guard: Option<KeyList>,
}

impl OldGuards {
    pub fn is_empty(&self) -> bool {
        self.redirect.is_none() && self.splits.is_empty() && self.key_guard.is_none()
    }
}

/// Reads them in one message, because clients wait.
pub fn find(target: &mut Connection, plan: &Plan) -> Result<OldGuards> {
    let splits = side::moved_away(plan, &plan.scope.strategy().entries());
    match target.run_for_each(&format!("{}; {splits}", key_list::ALL)) {
        Ok(answers) => {
            let mut answers = answers.into_iter().chain(std::iter::repeat_with(Rows::default));
            let mut next = || answers.next().unwrap_or_default();
            Ok(chosen(plan, &key_list::read(&next()), &next()))
        }
        // An earlier version has installed the agent there.
        Err(error) if error.is(UNDEFINED_TABLE) => {
            let lists = key_list::all(target)?;
            Ok(chosen(plan, &lists, &target.run(&splits)?))
        }
        Err(error) => Err(error.into()),
    }
}

const UNDEFINED_TABLE: &str = "42P01";

/// The queries for them, to be sent with others, so that no client waits for them separately.
pub struct GuardQuestions {
    has_table: bool,
}

impl GuardQuestions {
    pub fn prepare(target: &mut Connection) -> Result<GuardQuestions> {
        let tables = ListTables::read(&target.run(ListTables::QUERY)?);
        Ok(GuardQuestions { has_table: tables == ListTables::Own })
    }

    /// Returns two queries.
    pub fn questions(&self, plan: &Plan) -> String {
        let splits = side::moved_away(plan, &plan.scope.strategy().entries());
        let lists = if self.has_table { key_list::ALL } else { ListTables::QUERY };
        format!("{lists}; {splits}")
    }

    /// The number of answers.
    pub const ANSWERS: usize = 2;

    /// Reads the answers. Returns None if they must be read anew.
    pub fn read(&self, plan: &Plan, answers: &[Rows]) -> Option<OldGuards> {
        match answers {
            [lists, splits] if self.has_table => Some(chosen(plan, &key_list::read(lists), splits)),
            [tables, splits] if ListTables::read(tables) == ListTables::None => {
                Some(chosen(plan, &[], splits))
            }
            _ => None,
        }
    }
}

fn chosen(plan: &Plan, lists: &[KeyList], splits: &Rows) -> OldGuards {
    let (namespace, keyspace) = (&plan.target.namespace, &plan.keyspace);
    OldGuards {
        redirect: key_list::choose_redirect(lists, namespace, keyspace, plan.scope.strategy()).cloned(),
        splits: side::numbers(splits),
        key_guard: key_list::choose_guard(lists, namespace, keyspace).cloned(),
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
    match &guards.key_guard {
        Some(guard) => key_guard::add(target, guard, &plan.entries, plan.key_type),
        None => Ok(()),
    }
}

/// Removes them on the master as well, once the cutover has ended.
pub fn forget(plan: &Plan) {
    stored::came_back(&plan.keyspace, &plan.entries, &plan.target);
}
