//! Installing a split on its shards. Invariant: the ledger knows of a side before
//! anything is created there; a side's state row is committed before its first
//! trigger; the target is guarded before the source captures. Every statement can
//! be repeated.

use super::copy::leaves;
use super::injection_points::{self, reach};
use crate::agent::error::{Result, SplitError};
use crate::agent::filter::Filter;
use crate::agent::session::{self, Side};
use crate::agent::session_hash::AGENT;
use crate::agent::shape::Column;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::key_list::{self, KeyList};
use crate::agent::state::progress::{self, CopyProgress, TableProgress};
use crate::agent::state::side::{self, Version};
use crate::agent::state::{self, allowed_keys, consumed, lease, master, queue, scope};
use crate::agent::{self, WatchedTable, capture, decisions, key_guard, native, row_decision, schema, seen};
use crate::catalog::split::Plan;
use crate::catalog::split_ledger;
use crate::error::SqlState;
use crate::guc;
use crate::remote::Connection;
use crate::server::txn::transaction;
use crate::split::table::{self, SplitTable, triggers};
use crate::split::untrusted_code;

/// Installs the guard on the target and capture on the source. Returns the sessions that have done it, on source and
/// target.
pub fn install(tenure: &Tenure) -> Result<(Connection, Connection)> {
    let plan = &tenure.plan;
    reach(injection_points::INSTALL_BEGIN)?;
    let mut source = tenure.open(Side::Source, "install")?;
    let mut target = tenure.open(Side::Target, "install")?;
    untrusted_code::require_none(&mut source, plan, Side::Source)?;
    untrusted_code::require_none(&mut target, plan, Side::Target)?;
    let tables = table::load(plan, &mut source, &mut target)?;
    transaction(|| write_ledger(plan));
    reach(injection_points::INSTALL_LEDGER)?;

    create_side(&mut target, tenure, &tables, Side::Target)?;
    reach(injection_points::INSTALL_TARGET)?;
    triggers::install(&mut target, plan, &tables, Side::Target)?;
    reach(injection_points::INSTALL_GUARDED)?;
    find_strangers(&mut target, plan, &tables)?;

    create_side(&mut source, tenure, &tables, Side::Source)?;
    reach(injection_points::INSTALL_SOURCE)?;
    capture_by_triggers(&mut source, plan, &tables)?;
    Ok((source, target))
}

/// Installs only capture, on a source that no client of the moving keys writes to yet.
pub fn capture_alone(source: &mut Connection, tenure: &Tenure, tables: &[SplitTable]) -> Result<()> {
    create_side(source, tenure, tables, Side::Source)?;
    // The lease is not renewed before the split begins.
    source.run(&lease::hold(tenure.plan.id))?;
    reach(injection_points::INSTALL_SOURCE)?;
    capture_by_triggers(source, &tenure.plan, tables)
}

fn capture_by_triggers(source: &mut Connection, plan: &Plan, tables: &[SplitTable]) -> Result<()> {
    if !guc::capture() {
        return Ok(());
    }
    triggers::install_and(source, plan, tables, Side::Source, || {
        Ok(reach(injection_points::INSTALL_TRIGGER)?)
    })
}

/// Installs only the guard, if the source has captured for long.
pub fn guard_alone(target: &mut Connection, tenure: &Tenure, tables: &[SplitTable]) -> Result<()> {
    let plan = &tenure.plan;
    transaction(|| write_ledger(plan));
    reach(injection_points::INSTALL_LEDGER)?;
    create_side(target, tenure, tables, Side::Target)?;
    reach(injection_points::INSTALL_TARGET)?;
    triggers::install(target, plan, tables, Side::Target)?;
    reach(injection_points::INSTALL_GUARDED)?;
    // Creating its triggers may have waited long for writers, so the code is checked again.
    untrusted_code::require_none(target, plan, Side::Target)
}

/// Finds rows of the scope that were written to the target before its guard existed: CREATE TRIGGER has waited for
/// their writers. Nothing has been copied yet, so the split has not written them, and no rollback touches them. The
/// tables found here are those that rows may go to.
fn find_strangers(target: &mut Connection, plan: &Plan, tables: &[SplitTable]) -> Result<()> {
    // Creating its triggers may have waited long for writers: the code that its tables could run is checked again.
    let (now, stranger) = untrusted_code::reading(target, plan, Side::Target, |target, locked| {
        let now = seen::look(target, plan, Side::Target)?;
        locked.require_leaves(target.shard(), &now.tables)?;
        let looked: Vec<(&Column, &str)> = plan
            .tables
            .iter()
            .zip(&now.tables)
            .filter_map(|(policy, shape)| Some((shape.column(&policy.shard_by)?, shape.name.as_str())))
            .collect();
        let stranger = leaves::find_first(target, plan, &looked)?;
        Ok((now, stranger))
    })?;
    if let Some(stranger) = stranger {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "table {} on shard \"{}\" holds rows of key \"{}\", written while the split was installed",
                stranger.table,
                target.shard(),
                stranger.key
            ),
            format!(
                "SELECT shard_split_rollback({}) keeps them, unless they are the split's own copies, unknown to a restored master. If they remain once it is rolled_back, delete them, or assign the key to this shard if they are its rows. Then start the split again.",
                plan.id
            ),
        ));
    }
    let empty = CopyProgress {
        target_system: Some(now.system().to_owned()),
        tables: now
            .tables
            .iter()
            .zip(tables)
            .map(|(shape, table)| TableProgress {
                target_leaves: Some(leaves::of(shape)),
                ..TableProgress::of(&table.source, &table.target)
            })
            .collect(),
        ..CopyProgress::default()
    };
    progress::store_first(target, plan.id, &empty)
}

pub fn write_ledger(plan: &Plan) {
    let (source, target) = (plan.source.shard_key.as_str(), plan.target.shard_key.as_str());
    split_ledger::write(plan.id, &[("source", source), ("target", target)]);
}

/// Creates state row, generation, scope, queues and functions of one side, in one transaction, which ends before the
/// first trigger is created.
fn create_side(
    connection: &mut Connection,
    tenure: &Tenure,
    tables: &[SplitTable],
    side: Side,
) -> Result<()> {
    let plan = &tenure.plan;
    connection.run("BEGIN")?;
    // All splits of the database share the functions of buckets.
    let is_own = plan.scope.functions(AGENT).is_none();
    if is_own {
        schema::share(connection)?
    } else {
        schema::bootstrap(connection)?
    }
    side::require_own(connection, plan, side)?;
    master::insert(connection, &tenure.identity)?;
    master::check(connection, &tenure.identity)?;
    decisions::require_known(connection, side.shard(plan))?;
    create_rows(connection, plan, side, tenure.generation)?;
    let has_native = side == Side::Source && native::is_installed(connection)?;
    // What an earlier attempt has made stays so: its triggers may exist, which have no condition.
    let made = native::made(connection, plan.id, side)?;
    let is_native = |table: &SplitTable| {
        made.contains(&table.policy.ordinal)
            || has_native && native::suits(plan, &table.source, &table.source_by)
    };
    let filters = create_scope(connection, plan, tables, side, is_native)?;
    match side {
        Side::Source => create_capture(connection, plan, tables, &filters, is_native)?,
        Side::Target => {
            create_guard(connection, plan, tables)?;
            admit(connection, plan)?;
        }
    }
    schema::commit(connection)?;
    // The state row exists now: from here on the generation decides which worker may act.
    tenure.take_over(connection, side)
}

fn create_rows(connection: &mut Connection, plan: &Plan, side: Side, generation: i64) -> Result<()> {
    side::insert(connection, plan, side, &plan.scope.strategy().entries())?;
    epoch::insert(connection, plan.id, side, generation)?;
    match side {
        Side::Source => {
            consumed::insert(connection, plan.id)?;
            connection.run(&lease::renew(plan.id))?;
            Ok(())
        }
        Side::Target => {
            let empty = CopyProgress {
                tables: plan.tables.iter().map(|_| TableProgress::default()).collect(),
                ..CopyProgress::default()
            };
            progress::insert(connection, plan.id, &empty)
        }
    }
}

/// Renews the lease by a session of its own, for a split that is idle.
pub fn keep_lease(plan: &Plan) -> Result<()> {
    let mut source = session::open_mover(plan, Side::Source, "lease")?;
    if side::installed(&mut source, plan, Side::Source)? == side::Installed::Ours {
        source.run(&lease::renew(plan.id))?;
    }
    Ok(())
}

/// Filters of the scope, by the type of a shard-by column.
type Filters = Vec<(String, Option<Filter>)>;

/// Creates the table of the scope and its look-ups.
fn create_scope(
    connection: &mut Connection,
    plan: &Plan,
    tables: &[SplitTable],
    side: Side,
    is_native: impl Fn(&SplitTable) -> bool,
) -> Result<Filters> {
    let scope = scope::table(plan.id, side);
    let mut columns: Vec<&Column> = Vec::new();
    for table in tables {
        let column = match side {
            Side::Source => &table.source_by,
            Side::Target => &table.target_by,
        };
        match columns.iter_mut().find(|known| known.base == column.base) {
            // One function serves both: what holds for its collations.
            Some(known) if column.collation.is_some() => *known = column,
            Some(_) => {}
            None => columns.push(column),
        }
    }
    let Some(key_type) = columns.first().map(|column| column.base.as_str()) else { return Ok(Vec::new()) };
    connection.run(&plan.scope.table(&scope, key_type))?;
    if let Some(functions) = plan.scope.functions(AGENT) {
        connection.run(&functions)?;
    }
    let mut filters = Vec::new();
    for column in columns {
        let filter = Filter::of_scope(connection, &plan.scope, column)?;
        // A caller that has tested the filter before does not test it again.
        let is_of = |table: &&SplitTable| side == Side::Source && table.source_by.base == column.base;
        let is_asked = side == Side::Source
            && (row_decision::is_judged_within(plan, column) || tables.iter().filter(is_of).all(&is_native));
        connection.run(&agent::in_scope(plan, side, &column.base, filter.as_ref().filter(|_| !is_asked)))?;
        filters.push((column.base.clone(), filter));
    }
    Ok(filters)
}

fn create_capture(
    connection: &mut Connection,
    plan: &Plan,
    tables: &[SplitTable],
    filters: &Filters,
    is_native: impl Fn(&SplitTable) -> bool,
) -> Result<()> {
    queue::create_barrier(connection, plan.id)?;
    queue::create(connection, plan.id, tables.iter().map(|table| (table.policy.ordinal, &table.source)))?;
    let functions = |table: &SplitTable| {
        let filter = filters.iter().find(|(base, _)| *base == table.source_by.base);
        let filter = filter.and_then(|(_, filter)| filter.as_ref());
        let ordinal = table.policy.ordinal;
        let is_native = is_native(table);
        let watched = WatchedTable { shape: &table.source, shard_by: &table.source_by, ordinal, is_native };
        let mut functions = capture::functions(plan, watched, filter);
        if is_native {
            functions.push_str(&native::function(plan, ordinal));
        }
        functions
    };
    Ok(connection.run_all(tables.iter().map(functions))?)
}

fn create_guard(connection: &mut Connection, plan: &Plan, tables: &[SplitTable]) -> Result<()> {
    let guard =
        |table: &SplitTable| agent::guard(plan, table.policy.ordinal, &table.target, &table.target_by);
    Ok(connection.run_all(tables.iter().map(guard))?)
}

/// Adds the keys to the list of a key guard of the target before any row comes: a key that cannot be added is known
/// before anything moves, and the mover's rows are found there. The split's own guard refuses writers other than the
/// mover.
fn admit(target: &mut Connection, plan: &Plan) -> Result<()> {
    let Some(guard) = key_list::find_guard(target, &plan.target.namespace, &plan.keyspace)? else {
        return Ok(());
    };
    allowed_keys::require_same(&guard, plan.scope.strategy())?;
    key_guard::add(target, &guard, &plan.entries, plan.key_type)
}

/// Drops everything of a side, and the agent's schema with the last one. The state row goes last: until then a
/// remaining trigger refuses nothing wrongly.
pub fn drop_side(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    triggers::drop_all(connection, split, side)?;
    if !state::has(connection, "side")? {
        return Ok(());
    }
    // Other splits are not delayed, unless this may be the last one, which the schema is dropped with.
    let is_last = !schema::is_used(connection, Some((split, side)))?;
    connection.run("BEGIN")?;
    if is_last {
        schema::bootstrap(connection)?
    } else {
        schema::share(connection)?
    }
    schema::drop_objects(connection, split, side)?;
    connection.run(&format!("{}; {}", epoch::delete(split, side), side::delete(split, side)))?;
    if is_last {
        schema::drop_unused(connection)?;
    }
    connection.run("COMMIT")?;
    if is_last || schema::is_used(connection, None)? {
        return Ok(());
    }
    // The other splits have left at the same time.
    schema::remove(connection, |_| Ok(()))
}

/// Drops a key guard: its triggers first, so that no remaining part ever refuses anything.
pub fn drop_key_guard(connection: &mut Connection, guard: &KeyList) -> Result<()> {
    triggers::drop_key_guard(connection, guard, "")?;
    schema::remove(connection, |connection| key_guard::drop_objects(connection, guard))
}

/// Drops everything of a target but its state row, which shows that finish has left it: without it a restored master
/// could not distinguish a finished target from one that was restored to an earlier time.
pub fn leave_target(connection: &mut Connection, split: i64) -> Result<()> {
    triggers::drop_all(connection, split, Side::Target)?;
    connection.run("BEGIN")?;
    schema::share(connection)?;
    schema::drop_objects(connection, split, Side::Target)?;
    side::LEAVE.write(connection, split, Version::Kept)?;
    connection.run("COMMIT")?;
    Ok(())
}
