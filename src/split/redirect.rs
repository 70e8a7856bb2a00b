//! Redirects on the shards: what finish enters, what returns, how they end. Invariant: a key is refused by its split's
//! own triggers until every table has those of the redirect, and triggers go only while nothing has left. Each part
//! can be repeated.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::session_hash::AGENT;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::epoch;
use crate::agent::state::key_list::{self, KeyList, ListMode};
use crate::agent::state::moved_keys::{self, MovedFacts, WhoseEntries};
use crate::agent::{key_guard, schema, seen};
use crate::catalog::redirect::RedirectOwner;
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::keys::key_type::KeyType;
use crate::remote::Connection;
use crate::split::injection_points::{self, reach};
use crate::split::table::triggers;

/// Returns the routing version with which a plan's keys have left, if the source's redirect knows them.
pub fn known_version(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let entries = plan.scope.strategy();
    match key_list::find_redirect(source, &plan.source.namespace, &plan.keyspace, entries)? {
        Some(redirect) => moved_keys::version(source, &redirect, &plan.token),
        None => Ok(None),
    }
}

/// Enters the plan's keys and creates the missing triggers.
pub fn install(source: &mut Connection, plan: &Plan, generation: i64, version: i64) -> Result<()> {
    let observed = seen::look(source, plan, Side::Source)?;
    let mut tables: Vec<(&TableShape, &Column)> = Vec::new();
    for (policy, shape) in plan.tables.iter().zip(&observed.tables) {
        // A dropped table has no writers.
        if shape.oid.is_none() {
            continue;
        }
        let column = shape.column(&policy.shard_by).ok_or_else(|| {
            SplitError::failed(
                SqlState::parse("42703"),
                format!(
                    "table {} of shard \"{}\" has no column \"{}\"",
                    shape.name, plan.source.shard_key, policy.shard_by
                ),
                "Rename the column back, then call shard_split_finish again.",
            )
        })?;
        tables.push((shape, column));
    }
    let columns: Vec<&Column> = tables.iter().map(|(_, column)| *column).collect();
    let redirect = enter(source, plan, generation, version, &columns)?;
    reach(injection_points::FINISH_ENTERED)?;
    let Some(redirect) = redirect else { return Ok(()) };
    triggers::install_key_guard(source, &redirect, &tables, || Ok(reach(injection_points::FINISH_TRIGGER)?))
}

/// Enters, in one transaction, the redirect, what has left, and the look-ups that know it. Returns None if the source
/// has none of the tables any more.
fn enter(
    source: &mut Connection,
    plan: &Plan,
    generation: i64,
    version: i64,
    columns: &[&Column],
) -> Result<Option<KeyList>> {
    let Some(first) = columns.first() else { return Ok(None) };
    epoch::begin_as(source, plan.id, Side::Source, generation)?;
    schema::bootstrap(source)?;
    let redirect = ensure(source, plan, first)?;
    let facts = MovedFacts { shard: &plan.target.shard_key, version, split: plan.id, token: &plan.token };
    moved_keys::enter(source, &redirect, &plan.scope, plan.key_type, first, &facts)?;
    if let Some(functions) = plan.scope.functions(AGENT) {
        source.run(&functions)?;
    }
    key_guard::write_denied(source, &redirect, columns)?;
    schema::commit(source)?;
    Ok(Some(redirect))
}

/// Returns the plan's redirect, and creates it if there is none. The caller holds the bootstrap's lock.
fn ensure(source: &mut Connection, plan: &Plan, column: &Column) -> Result<KeyList> {
    let entries = plan.scope.strategy();
    let (namespace, keyspace) = (&plan.source.namespace, &plan.keyspace);
    let place = [namespace.as_str(), keyspace, &plan.source.shard_key];
    key_list::insert(source, ListMode::Deny, place, entries)?;
    let found = key_list::find_redirect(source, namespace, keyspace, entries)?;
    let redirect = found.ok_or_else(|| SplitError::Retry("the redirect of the source".into()))?;
    key_list::create_entries(source, &redirect, column)?;
    Ok(redirect)
}

/// Removes what returns from a redirect, in the open transaction that admits clients here. The look-ups stay as they
/// are: they admit what is not in the table.
pub fn release(connection: &mut Connection, redirect: &KeyList, plan: &Plan) -> Result<()> {
    moved_keys::take_out(connection, redirect, &plan.scope, plan.key_type, WhoseEntries::Anybody)
}

/// The part that ends of what a split has moved away.
pub enum RedirectEnding<'a> {
    All,
    /// Keys, buckets, or parts of ranges, by their names.
    Named(&'a [String], Option<KeyType>),
}

/// Commits what has ended. Returns false if it must not end after all: then nothing has ended.
pub type Commit<'a> = &'a mut dyn FnMut(&mut Connection) -> Result<bool>;

/// Commits without a further check.
pub fn commit(connection: &mut Connection) -> Result<bool> {
    connection.run("COMMIT")?;
    Ok(true)
}

/// Ends what a split has left in a database; triggers and tables are dropped with the last entry, the agent's schema
/// with the last redirect. Returns false if it stays.
pub fn end(
    connection: &mut Connection,
    by: RedirectOwner<'_>,
    ending: &RedirectEnding<'_>,
    commit: Commit<'_>,
) -> Result<bool> {
    for redirect in key_list::redirects(connection)? {
        if moved_keys::count(connection, &redirect, WhoseEntries::Split(by))? > 0 {
            take_out(connection, &redirect, by, ending)?;
            if !commit(connection)? {
                connection.run("ROLLBACK")?;
                return Ok(false);
            }
        }
        tidy(connection, &redirect)?;
    }
    Ok(true)
}

/// Removes entries in a transaction, which stays open.
fn take_out(
    connection: &mut Connection,
    redirect: &KeyList,
    by: RedirectOwner<'_>,
    ending: &RedirectEnding<'_>,
) -> Result<()> {
    connection.run("BEGIN")?;
    schema::bootstrap(connection)?;
    match ending {
        RedirectEnding::All => moved_keys::take_out_all(connection, redirect, by)?,
        RedirectEnding::Named(names, key_type) => {
            let back = redirect.entries.scope(names);
            moved_keys::take_out(connection, redirect, &back, *key_type, WhoseEntries::Split(by))?;
        }
    }
    key_guard::write_denied(connection, redirect, &[])
}

/// Drops the redirects that refuse nothing any more.
pub fn tidy_all(connection: &mut Connection) -> Result<()> {
    key_list::redirects(connection)?.iter().try_for_each(|redirect| tidy(connection, redirect))
}

/// Makes the look-ups forget the keys that a split has brought here, after it is finished.
pub fn forget_released(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let entries = plan.scope.strategy();
    let Some(redirect) =
        key_list::find_redirect(connection, &plan.target.namespace, &plan.keyspace, entries)?
    else {
        return Ok(());
    };
    connection.run("BEGIN")?;
    schema::bootstrap(connection)?;
    // Another session may have ended it meanwhile.
    if moved_keys::exists(connection, &redirect)? {
        key_guard::write_denied(connection, &redirect, &[])?;
    }
    connection.run("COMMIT")?;
    tidy(connection, &redirect)
}

/// Drops a redirect that refuses nothing any more.
pub fn tidy(connection: &mut Connection, redirect: &KeyList) -> Result<()> {
    if !moved_keys::exists(connection, redirect)?
        || moved_keys::count(connection, redirect, WhoseEntries::Anybody)? > 0
    {
        return Ok(());
    }
    match triggers::drop_key_guard(connection, redirect, &moved_keys::require_empty(redirect)) {
        // Keys have left meanwhile, or another session was faster.
        Err(SplitError::Remote(error)) if error.is("55006") || error.is("42P01") => return Ok(()),
        other => other?,
    }
    schema::remove(connection, |connection| drop_objects(connection, redirect))
}

fn drop_objects(connection: &mut Connection, redirect: &KeyList) -> Result<()> {
    if !moved_keys::exists(connection, redirect)? {
        return Ok(());
    }
    moved_keys::lock(connection, redirect)?;
    if moved_keys::count(connection, redirect, WhoseEntries::Anybody)? > 0
        || triggers::has_key_guard(connection, redirect)?
    {
        return Ok(());
    }
    key_guard::drop_objects(connection, redirect)
}
