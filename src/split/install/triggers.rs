//! The triggers of a split on its tables. Invariant: writers wait for a moment at most,
//! however many partitions a table has.

use crate::agent::error::{Result, SplitError};
use crate::agent::redirect::Write;
use crate::agent::session::{self, Side};
use crate::agent::shape::{Column, TableShape};
use crate::agent::short_lock::{TableLock, with_short_lock, with_short_lock_once};
use crate::agent::standing::Arrival;
use crate::agent::state::left;
use crate::agent::state::redirect::Redirect;
use crate::agent::state::standing::Standing;
use crate::agent::{self, Event};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::split::table::Table;

/// Creates what a table has not, few triggers in a transaction, because CREATE TRIGGER
/// waits for open writers and stalls new ones. Those for rows are the partitioned table's
/// own: the server clones them to the partitions that there are and to those that come.
/// TRUNCATE fires no clone, so each leaf has a trigger for it.
pub fn install(connection: &mut Connection, plan: &Plan, table: &Table, side: Side) -> Result<()> {
    let (shape, column) = match side {
        Side::Source => (&table.source, &table.source_by),
        Side::Target => (&table.target, &table.target_by),
    };
    let ordinal = table.policy.ordinal;
    let mut groups: Vec<(&str, &str, &[Event])> = Vec::new();
    if shape.is_partitioned() {
        let oid = shape.oid.as_deref().unwrap_or_default();
        groups.extend(Event::ROW.chunks(1).map(|event| (oid, shape.name.as_str(), event)));
        groups.extend(
            shape.leaves().iter().map(|leaf| (leaf.oid.as_str(), leaf.name.as_str(), &[Event::Truncate][..])),
        );
    } else {
        groups.extend(
            shape.leaves().iter().map(|leaf| (leaf.oid.as_str(), leaf.name.as_str(), &Event::ALL[..])),
        );
    }
    let function = agent::trigger_function(plan.id, side, ordinal);
    for (oid, name, events) in groups {
        let watched = agent::Watched { shape, shard_by: column, ordinal };
        let wanted: Vec<Wanted> = events
            .iter()
            .map(|event| Wanted {
                trigger: agent::trigger_name(plan.id, side, *event),
                function: &function,
                statement: agent::trigger(plan, side, watched, name, *event),
            })
            .collect();
        create_missing(connection, oid, name, &wanted)?;
    }
    Ok(())
}

/// Creates what a table has not of a redirect's triggers: those of the partitioned table
/// one by one.
pub fn install_redirect(
    connection: &mut Connection,
    redirect: &Redirect,
    shape: &TableShape,
    column: &Column,
) -> Result<()> {
    let oid = shape.oid.as_deref().unwrap_or_default();
    let at_once = if shape.is_partitioned() { 1 } else { Write::ALL.len() };
    for writes in Write::ALL.chunks(at_once) {
        let wanted: Vec<Wanted> = writes
            .iter()
            .map(|write| Wanted {
                trigger: redirect.trigger_name(*write),
                function: "redirect",
                statement: redirect.trigger(column, &shape.name, *write),
            })
            .collect();
        create_missing(connection, oid, &shape.name, &wanted)?;
    }
    Ok(())
}

/// The same of a standing guard's, whose look-up for the column is there.
pub fn install_standing(
    connection: &mut Connection,
    guard: &Standing,
    shape: &TableShape,
    column: &Column,
) -> Result<()> {
    let oid = shape.oid.as_deref().unwrap_or_default();
    let at_once = if shape.is_partitioned() { 1 } else { Arrival::ALL.len() };
    for arrivals in Arrival::ALL.chunks(at_once) {
        let wanted: Vec<Wanted> = arrivals
            .iter()
            .map(|arrival| Wanted {
                trigger: guard.trigger_name(*arrival),
                function: "standing",
                statement: guard.trigger(column, &shape.name, *arrival),
            })
            .collect();
        create_missing(connection, oid, &shape.name, &wanted)?;
    }
    Ok(())
}

/// A trigger that a table is to have.
struct Wanted<'a> {
    trigger: String,
    function: &'a str,
    statement: String,
}

/// Creates those of the triggers that a table has not, in one transaction.
fn create_missing(connection: &mut Connection, oid: &str, name: &str, wanted: &[Wanted<'_>]) -> Result<()> {
    let mut statements = String::new();
    for wanted in wanted {
        match wanted.look_up(connection, oid)? {
            Found::Whole => continue,
            Found::Others(tables) => {
                let trigger = ident(&wanted.trigger);
                let drops = tables.iter().map(|table| format!("DROP TRIGGER {trigger} ON {table}; "));
                statements.extend(drops);
            }
        }
        statements.push_str(&wanted.statement);
    }
    if statements.is_empty() { Ok(()) } else { create(connection, &statements, name) }
}

/// What a table has of a trigger.
enum Found {
    /// It is there, with its function, and fires always.
    Whole,
    /// It is to be created; on these tables another one has its name.
    Others(Vec<String>),
}

impl Wanted<'_> {
    /// Looks at a table and its partitions. A partition's own trigger of the name would
    /// keep the server from cloning.
    fn look_up(&self, connection: &mut Connection, oid: &str) -> Result<Found> {
        let rows = connection.query(
            "SELECT format('%I.%I', n.nspname, c.relname),
                    t.tgrelid = $1::oid AND t.tgenabled = 'A' AND EXISTS (
                        SELECT 1 FROM pg_proc f
                         WHERE f.oid = t.tgfoid AND f.proname = $3
                           AND f.pronamespace = to_regnamespace('shardmaster_agent'))
               FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE t.tgname = $2 AND t.tgparentid = 0
                AND t.tgrelid IN (SELECT $1::oid UNION ALL SELECT relid FROM pg_partition_tree($1::oid))
              ORDER BY c.oid",
            &[Some(oid), Some(&self.trigger), Some(self.function)],
        )?;
        let mut tables = Vec::new();
        for row in rows.rows {
            match row.as_slice() {
                [_, Some(whole)] if whole == "t" => return Ok(Found::Whole),
                [Some(table), _] => tables.push(table.clone()),
                _ => {}
            }
        }
        Ok(Found::Others(tables))
    }
}

/// How the lock on a table is come by.
type Locked = fn(&mut Connection, TableLock, &str, &str) -> Result<()>;

/// Statements that make triggers of a table, in one transaction. Work that keeps others waiting makes one attempt.
pub fn create(connection: &mut Connection, statements: &str, table: &str) -> Result<()> {
    let locked: Locked = if session::is_hasty() { with_short_lock_once } else { with_short_lock };
    match locked(connection, TableLock::ShareRowExclusive, statements, table) {
        // A session of the worker before was faster: look again.
        Err(SplitError::Remote(error)) if error.is("42710") => {
            Err(SplitError::Retry(format!("the previous worker's triggers on {table}")))
        }
        other => other,
    }
}

/// Drops a side's triggers, one table a transaction. Clones go with what they were made of.
pub fn drop_all(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    let called = "starts_with(f.proname, $1)";
    drop_called(connection, called, &agent::trigger_functions(split, side), "")
}

/// Drops a redirect's triggers, each table's only while nothing has left: who puts keys in
/// waits for the lock, and finds afterwards what is missing.
pub fn drop_redirect(connection: &mut Connection, redirect: &Redirect) -> Result<()> {
    drop_called(connection, OF_LOOK_UP, &redirect.function(), &left::require_empty(redirect))
}

/// Drops a standing guard's triggers.
pub fn drop_standing(connection: &mut Connection, guard: &Standing) -> Result<()> {
    drop_called(connection, OF_LOOK_UP, &guard.function(), "")
}

/// Whether any table has a trigger of a redirect.
pub fn has_redirect(connection: &mut Connection, redirect: &Redirect) -> Result<bool> {
    let any = format!("SELECT EXISTS (SELECT 1 FROM pg_trigger t WHERE {OF_LOOK_UP})");
    Ok(connection.query(&any, &[Some(&redirect.function())])?.scalar() == Some("t"))
}

/// Whether a trigger `t` is a redirect's or a standing guard's, by the look-up $1 that its
/// condition calls: the function is one for all of them.
const OF_LOOK_UP: &str = "EXISTS (
    SELECT 1 FROM pg_depend d JOIN pg_proc l ON l.oid = d.refobjid
     WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_proc'::regclass
       AND l.proname = $1 AND l.pronamespace = to_regnamespace('shardmaster_agent'))";

/// Drops the triggers that call the agent's functions, whatever they are called: whoever owns
/// a table can give its triggers other names, and ours to others.
pub fn drop_called(connection: &mut Connection, called: &str, function: &str, first: &str) -> Result<()> {
    drop_under(with_short_lock, connection, (called, function), first)
}

/// The same with one attempt for each table: others are waiting.
pub fn drop_called_once(connection: &mut Connection, called: &str, function: &str) -> Result<()> {
    drop_under(with_short_lock_once, connection, (called, function), "")
}

fn drop_under(
    locked: Locked,
    connection: &mut Connection,
    (called, function): (&str, &str),
    first: &str,
) -> Result<()> {
    let rows = connection.query(
        &format!(
            "SELECT n.nspname, c.relname, json_agg(t.tgname)
               FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
               JOIN pg_proc f ON f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent')
              WHERE t.tgparentid = 0 AND {called} GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        &[Some(function)],
    )?;
    for row in rows.rows {
        let [Some(schema), Some(name), Some(triggers)] = row.as_slice() else { continue };
        let table = &format!("{}.{}", ident(schema), ident(name));
        let triggers: Vec<String> = serde_json::from_str(triggers).unwrap_or_default();
        let drops: Vec<String> =
            triggers.iter().map(|t| format!("DROP TRIGGER IF EXISTS {} ON {table}", ident(t))).collect();
        let statements = format!("{first}{}", drops.join("; "));
        match locked(connection, TableLock::AccessExclusive, &statements, table) {
            // Dropped meanwhile, with its table.
            Err(SplitError::Remote(error)) if error.is("42P01") => {}
            other => other?,
        }
    }
    Ok(())
}
