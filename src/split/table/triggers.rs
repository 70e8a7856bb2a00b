//! The triggers of a split on its tables. Invariant: writers wait for a moment at most, however many partitions a
//! table has, and for one table at a time.

use crate::agent::error::{Result, SplitError};
use crate::agent::key_guard::CheckedWrite;
use crate::agent::session::{self, Side};
use crate::agent::shape::{Column, TableShape};
use crate::agent::short_lock::{OnTable, TableLock, with_short_lock, with_short_lock_once, with_short_locks};
use crate::agent::state::key_list::{KeyList, ListMode};
use crate::agent::{self, TriggerEvent, catalogs, native};
use crate::catalog::split::Plan;
use crate::remote::quote::{array_of, ident, qualified, text_array};
use crate::remote::{Connection, number};
use crate::split::table::SplitTable;

/// Creates the missing triggers of tables, few in a transaction, because CREATE TRIGGER waits for open writers and
/// blocks new ones. Those for rows are the partitioned table's own: the server clones them to existing and future
/// partitions. TRUNCATE fires no clone, so each leaf has a trigger for it.
pub fn install(connection: &mut Connection, plan: &Plan, tables: &[SplitTable], side: Side) -> Result<()> {
    install_and(connection, plan, tables, side, || Ok(()))
}

/// Creates them; `done` is called after each message, when the triggers of some tables exist and those of others do
/// not.
pub fn install_and(
    connection: &mut Connection,
    plan: &Plan,
    tables: &[SplitTable],
    side: Side,
    done: impl FnMut() -> Result<()>,
) -> Result<()> {
    let functions: Vec<String> =
        tables.iter().map(|table| agent::trigger_function(plan.id, side, table.policy.ordinal)).collect();
    let native = native::made(connection, plan.id, side)?;
    let mut groups = Vec::new();
    for (table, function) in tables.iter().zip(&functions) {
        let is_native = native.contains(&table.policy.ordinal);
        groups.extend(of_table(plan, table, side, function, is_native));
    }
    create_missing(connection, &groups, done)
}

/// Returns the triggers that a table of the split must have, by transactions.
fn of_table<'a>(
    plan: &Plan,
    table: &'a SplitTable,
    side: Side,
    function: &'a str,
    is_native: bool,
) -> Vec<Group<'a>> {
    let (shape, column) = match side {
        Side::Source => (&table.source, &table.source_by),
        Side::Target => (&table.target, &table.target_by),
    };
    let ordinal = table.policy.ordinal;
    let mut groups: Vec<(&str, &str, &[TriggerEvent])> = Vec::new();
    if shape.is_partitioned() {
        let oid = shape.oid.as_deref().unwrap_or_default();
        groups.extend(TriggerEvent::ROW.chunks(1).map(|event| (oid, shape.name.as_str(), event)));
        groups.extend(
            shape
                .leaves()
                .iter()
                .map(|leaf| (leaf.oid.as_str(), leaf.name.as_str(), &[TriggerEvent::Truncate][..])),
        );
    } else {
        groups.extend(
            shape.leaves().iter().map(|leaf| (leaf.oid.as_str(), leaf.name.as_str(), &TriggerEvent::ALL[..])),
        );
    }
    let watched = agent::WatchedTable { shape, shard_by: column, ordinal, is_native };
    let wanted = |name: &str, event: &TriggerEvent| WantedTrigger {
        trigger: agent::trigger_name(plan.id, side, ordinal, *event),
        function,
        column: None,
        statement: if is_native && *event != TriggerEvent::Truncate {
            native::trigger(plan, watched, *event)
        } else {
            agent::trigger(plan, side, watched, name, *event)
        },
    };
    groups
        .into_iter()
        .map(|(oid, name, events)| Group {
            oid,
            name,
            wanted: events.iter().map(|event| wanted(name, event)).collect(),
        })
        .collect()
}

/// Creates the missing triggers of a list, whose lookups for the columns exist: those of a partitioned table one by
/// one. `done` is called after each message.
pub fn install_key_guard(
    connection: &mut Connection,
    list: &KeyList,
    tables: &[(&TableShape, &Column)],
    done: impl FnMut() -> Result<()>,
) -> Result<()> {
    let groups: Vec<Group<'_>> =
        tables.iter().flat_map(|(shape, column)| Group::of(list, shape, column)).collect();
    create_missing(connection, &groups, done)
}

/// A trigger that a table must have.
struct WantedTrigger<'a> {
    trigger: String,
    function: &'a str,
    /// The column that its condition must read: another column may have got the name, or a partition's clone may have
    /// been disabled.
    column: Option<&'a str>,
    statement: String,
}

/// Triggers of a table that are created in one transaction.
struct Group<'a> {
    oid: &'a str,
    name: &'a str,
    wanted: Vec<WantedTrigger<'a>>,
}

impl<'a> Group<'a> {
    /// Returns all triggers of a list on a table as one group; those of a partitioned table are separate groups, since each
    /// also locks its partitions.
    fn of(list: &KeyList, shape: &'a TableShape, column: &'a Column) -> Vec<Group<'a>> {
        let wanted = |write: &CheckedWrite| WantedTrigger {
            trigger: list.trigger_name(*write, shape),
            function: "key_guard",
            // A redirect's keys stay those of the column that they have left, whatever name it gets.
            column: (list.mode == ListMode::Allow).then_some(column.name.as_str()),
            statement: list.trigger(column, shape, *write),
        };
        let all = list.checked();
        let at_once = if shape.is_partitioned() { 1 } else { all.len() };
        let group = |some: &[CheckedWrite]| Group {
            oid: shape.oid.as_deref().unwrap_or_default(),
            name: &shape.name,
            wanted: some.iter().map(wanted).collect(),
        };
        all.chunks(at_once).map(group).collect()
    }
}

/// Creates the missing triggers of tables, each group in one transaction.
fn create_missing(
    connection: &mut Connection,
    groups: &[Group<'_>],
    mut done: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut found = look_up(connection, groups)?.into_iter();
    let mut missing = Vec::new();
    for group in groups {
        let mut statements = String::new();
        for wanted in &group.wanted {
            let Some(FoundTrigger::Others(tables)) = found.next() else { continue };
            let drop =
                |(table, trigger): &(String, String)| format!("DROP TRIGGER {} ON {table}; ", ident(trigger));
            statements.extend(tables.iter().map(drop));
            statements.push_str(&wanted.statement);
        }
        if !statements.is_empty() {
            missing.push(OnTable { table: group.name.to_owned(), statements });
        }
    }
    if missing.is_empty() {
        return done();
    }
    let alone = |connection: &mut Connection, on: &OnTable| create(connection, &on.statements, &on.table);
    with_short_locks(connection, TableLock::ShareRowExclusive, &missing, alone, done)
}

/// The state of a trigger of a table.
enum FoundTrigger {
    /// It exists, with its function, and fires always.
    Whole,
    /// It must be created; the list has tables and triggers in its place.
    Others(Vec<(String, String)>),
}

/// The greatest number of triggers that are searched in one query.
const MOST_LOOKED_FOR: usize = 1000;

/// Checks each group's table and its partitions, for each wanted trigger. A partition's own trigger of the name would
/// keep the server from cloning.
fn look_up(connection: &mut Connection, groups: &[Group<'_>]) -> Result<Vec<FoundTrigger>> {
    let all: Vec<(&str, &WantedTrigger<'_>)> =
        groups.iter().flat_map(|group| group.wanted.iter().map(|wanted| (group.oid, wanted))).collect();
    let mut found = Vec::new();
    for some in all.chunks(MOST_LOOKED_FOR) {
        found.extend(look_up_some(connection, some)?);
    }
    Ok(found)
}

fn look_up_some(
    connection: &mut Connection,
    some: &[(&str, &WantedTrigger<'_>)],
) -> Result<Vec<FoundTrigger>> {
    let list = |of: &dyn Fn(&(&str, &WantedTrigger<'_>)) -> String| {
        text_array(&some.iter().map(of).collect::<Vec<_>>())
    };
    let rows = catalogs::ask(
        connection,
        include_str!("../../../sql/agent/wanted_triggers.sql"),
        &[
            Some(&list(&|(oid, _)| (*oid).to_owned())),
            Some(&list(&|(_, wanted)| wanted.trigger.clone())),
            Some(&list(&|(_, wanted)| wanted.function.to_owned())),
            Some(&array_of(some.iter().map(|(_, wanted)| wanted.column))),
        ],
    )?;
    let mut found: Vec<FoundTrigger> = some.iter().map(|_| FoundTrigger::Others(Vec::new())).collect();
    for row in rows.rows {
        let [Some(position), Some(table), Some(trigger), whole] = row.as_slice() else { continue };
        let Some(found) = number::index(position).and_then(|index| found.get_mut(index)) else { continue };
        match (whole.as_deref() == Some("t"), &mut *found) {
            (true, found) => *found = FoundTrigger::Whole,
            (false, FoundTrigger::Others(tables)) => tables.push((table.clone(), trigger.clone())),
            (false, FoundTrigger::Whole) => {}
        }
    }
    Ok(found)
}

/// How the lock on a table is taken.
type TakeLock = fn(&mut Connection, TableLock, &str, &str) -> Result<()>;

/// Runs statements that create triggers of a table, in one transaction. Work that keeps others waiting makes one
/// attempt.
pub fn create(connection: &mut Connection, statements: &str, table: &str) -> Result<()> {
    let locked: TakeLock =
        if session::has_connect_timeout() { with_short_lock_once } else { with_short_lock };
    match locked(connection, TableLock::ShareRowExclusive, statements, table) {
        // A session of the earlier worker was faster: check again.
        Err(SplitError::Remote(error)) if error.is("42710") => {
            Err(SplitError::Retry(format!("the previous worker's triggers on {table}")))
        }
        other => other,
    }
}

/// Drops a side's triggers, one table per transaction, several in a message. Clones are dropped with their originals.
pub fn drop_all(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    let called = "starts_with(f.proname, $1)";
    drop_called(connection, called, &agent::trigger_functions(split, side), "")
}

/// Drops the triggers of a list. `first`: what each transaction does first, for example to require that a redirect is
/// empty: a session that enters keys waits for its lock, and then finds what is missing.
pub fn drop_key_guard(connection: &mut Connection, list: &KeyList, first: &str) -> Result<()> {
    drop_called(connection, OF_LOOK_UP, &list.function(), first)
}

/// Returns schemas and names of the tables that have all of a key guard's triggers.
pub fn guarded_tables(connection: &mut Connection, guard: &KeyList) -> Result<Vec<(String, String)>> {
    let rows = connection.query(
        &format!(
            "SELECT n.nspname, c.relname
               FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE t.tgparentid = 0 AND t.tgenabled = 'A' AND {OF_LOOK_UP}
              GROUP BY 1, 2 HAVING count(*) = {}",
            guard.checked().len()
        ),
        &[Some(&guard.function())],
    )?;
    Ok(rows.pairs().collect())
}

/// Drops the triggers of tables that are no longer in the keyspace, since somebody has renamed them.
pub fn drop_strays(connection: &mut Connection, guard: &KeyList, tables: &[&TableShape]) -> Result<()> {
    let oids = tables.iter().filter_map(|shape| shape.oid.as_deref()?.parse::<u32>().ok());
    let oids: Vec<String> = oids.map(|oid| oid.to_string()).collect();
    let called = format!("{OF_LOOK_UP} AND t.tgrelid <> ALL ('{{{}}}'::oid[])", oids.join(","));
    drop_called(connection, &called, &guard.function(), "")
}

/// Whether any table has a trigger of a list.
pub fn has_key_guard(connection: &mut Connection, list: &KeyList) -> Result<bool> {
    let any = format!("SELECT EXISTS (SELECT 1 FROM pg_trigger t WHERE {OF_LOOK_UP})");
    Ok(connection.query(&any, &[Some(&list.function())])?.is_true())
}

/// SQL condition: a trigger `t` is that of a list, by the lookup $1 that its condition calls. All of
/// them share one trigger function.
const OF_LOOK_UP: &str = "t.oid = ANY (ARRAY(
    SELECT d.objid FROM pg_proc l CROSS JOIN LATERAL (SELECT d.classid, d.objid FROM pg_depend d
                                                       WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = l.oid OFFSET 0) d
     WHERE l.proname = $1 AND l.pronamespace = to_regnamespace('shardmaster_agent') AND d.classid = 'pg_trigger'::regclass))";

/// Drops the triggers that call the agent's functions, whatever their names are: the owner of a table can rename its
/// triggers.
pub fn drop_called(connection: &mut Connection, called: &str, function: &str, first: &str) -> Result<()> {
    drop_under(with_short_lock, connection, called, function, first)
}

/// Drops them with one attempt for each table: others are waiting.
pub fn drop_called_once(connection: &mut Connection, called: &str, function: &str) -> Result<()> {
    drop_under(with_short_lock_once, connection, called, function, "")
}

fn drop_under(
    locked: TakeLock,
    connection: &mut Connection,
    called: &str,
    function: &str,
    first: &str,
) -> Result<()> {
    let rows = catalogs::ask(
        connection,
        &format!(
            "SELECT n.nspname, c.relname, json_agg(t.tgname)
               FROM pg_proc f
              CROSS JOIN LATERAL (
                -- From each function to its triggers, by the indexes, of which nothing else is known: else each would be compared with
                -- all triggers of the database.
                SELECT t.* FROM (SELECT d.classid, d.objid FROM pg_depend d
                                  WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid OFFSET 0) d
                  JOIN pg_trigger t ON t.oid = d.objid
                 WHERE d.classid = 'pg_trigger'::regclass AND t.tgfoid = f.oid
                OFFSET 0) t
               JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE f.pronamespace = to_regnamespace('shardmaster_agent') AND t.tgparentid = 0 AND {called} GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        &[Some(function)],
    )?;
    let mut all = Vec::new();
    for row in rows.rows {
        let [Some(schema), Some(name), Some(triggers)] = row.as_slice() else { continue };
        let table = qualified(schema, name);
        let triggers: Vec<String> = serde_json::from_str(triggers).unwrap_or_default();
        let drops: Vec<String> =
            triggers.iter().map(|t| format!("DROP TRIGGER IF EXISTS {} ON {table}", ident(t))).collect();
        all.push(OnTable { statements: format!("{first}{}", drops.join("; ")), table });
    }
    let lock = TableLock::AccessExclusive;
    let alone = |connection: &mut Connection, on: &OnTable| {
        match locked(connection, lock, &on.statements, &on.table) {
            // The trigger was dropped meanwhile, with its table.
            Err(SplitError::Remote(error)) if error.is("42P01") => Ok(()),
            other => other,
        }
    };
    with_short_locks(connection, lock, &all, alone, || Ok(()))
}
