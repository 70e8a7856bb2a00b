//! Keys that come back to where they had left: what refuses them there lets them in, from
//! the commit on that opens the target for them. What counts is the namespace and the
//! keyspace in the database itself, not what the shard is called. What is released twice is
//! gone already.

use super::redirect;
use crate::agent::error::Result;
use crate::agent::redirect::Redirect;
use crate::agent::scope::range_rows;
use crate::agent::scope_table;
use crate::agent::session::Side;
use crate::agent::state::side;
use crate::catalog::redirect as stored;
use crate::catalog::split::Plan;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// What may refuse the split's keys on the target.
pub struct OldGuards {
    redirect: Option<Redirect>,
    /// Splits that have moved them away and are not finished, in the order in which all
    /// splits lock them.
    splits: Vec<i64>,
}

pub fn find(target: &mut Connection, plan: &Plan) -> Result<OldGuards> {
    let entries = plan.scope.strategy();
    let (namespace, keyspace) = (&plan.target.namespace, &plan.keyspace);
    let redirect = redirect::find(target, namespace, keyspace, entries)?;
    let splits = side::moved_away(target, plan, &entries.entries())?;
    Ok(OldGuards { redirect, splits })
}

/// Takes the split's keys out of them, in the target's open transaction.
pub fn release(target: &mut Connection, plan: &Plan, guards: &OldGuards) -> Result<()> {
    if let Some(redirect) = &guards.redirect {
        redirect::release(target, redirect, plan)?;
    }
    for split in &guards.splits {
        let there = format!("shardmaster_agent.{}", scope_table(*split, Side::Source));
        match &plan.scope {
            Scope::Keys(_) | Scope::Buckets { .. } => {
                target.run(&format!(
                    "DELETE FROM {there} WHERE key::text = ANY ({}::text[])",
                    array_literal(&plan.entries)
                ))?;
            }
            Scope::Ranges { of, ranges } => {
                release_ranges(target, &there, *of, ranges)?;
            }
        }
    }
    Ok(())
}

/// The master knows of it, too, once the cutover is at its end.
pub fn forget(plan: &Plan) {
    stored::came_back(&plan.keyspace, &plan.entries, &plan.target);
}

/// A range that comes back in part is left with the rest. Two splits may each bring back
/// a part of it: the second one waits, and finds what the first has left.
fn release_ranges(target: &mut Connection, table: &str, of: Ordered, back: &[Interval]) -> Result<()> {
    target.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))?;
    let rows = target.run(&format!("SELECT key FROM {table}"))?;
    let names: Vec<String> =
        rows.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
    for name in names {
        let Some(range) = Interval::parse(&name, of) else { continue };
        let mut left = vec![range.clone()];
        for interval in back {
            left = left.iter().flat_map(|part| part.without(interval, of)).collect();
        }
        if left == [range] {
            continue;
        }
        let rest = if left.is_empty() {
            String::new()
        } else {
            format!("INSERT INTO {table} VALUES {} ON CONFLICT DO NOTHING;", range_rows(&left, of))
        };
        target.run(&format!("DELETE FROM {table} WHERE key = {}; {rest}", literal(&name)))?;
    }
    Ok(())
}
