//! The structure of a shard's tables, read in one query.

use super::catalogs;
use super::error::{Result, SplitError};
use super::session::Side;
use super::shape::Observation;
use super::table_names::TableNames;
use crate::agent;
use crate::agent::catalog_fingerprint::{self, LISTS};
use crate::agent::named::NamedThings;
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::remote::quote::text_array;
use crate::remote::result::Rows;
use crate::remote::template::{fill, number, sql};
use crate::remote::{Connection, RemoteError};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// The greatest depth of types within types of a column that is searched.
const DEPTH: u32 = 64;
/// The greatest number of types that the columns of a side's tables are made of, each counted as often as it is used.
const PARTS: u32 = 20_000;

/// System identifier and timeline.
pub const SERVER: &str = "(SELECT system_identifier::text FROM pg_control_system()) || ':' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";

static OBSERVE: LazyLock<String> = LazyLock::new(|| query(&agent::code_facts(["$6", "$7", "$8"])));

/// Returns the query; `code` is SQL for what the tables could run.
fn query(code: &str) -> String {
    let stamp = catalog_fingerprint::value(|name, _| format!("(SELECT k.{name} FROM kin k)"), "$3");
    fill(
        include_str!("../../sql/agent/observe.sql"),
        &[
            ("depth", number(DEPTH)),
            ("parts", number(PARTS)),
            ("code", sql(code)),
            ("server", sql(SERVER)),
            ("stamp", sql(stamp)),
        ],
    )
}

/// Returns the structure of a shard's tables now, in the session's snapshot, whatever was read before. `seen::look`
/// costs less.
pub fn observe(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Observation> {
    let message = statements(connection, plan, side)?;
    let answers = connection.run_for_each(&message)?;
    let now = read(connection.shard(), plan, &answers.into_iter().next().unwrap_or_default())?;
    keep(plan, side, &now);
    Ok(now)
}

/// The number of kept observations of one process: both sides of a split, and of its reverse split.
const KEPT: usize = 4;

thread_local! {
    /// The latest observations by their subjects, the latest first.
    static LATEST: RefCell<VecDeque<(String, Observation)>> = const { RefCell::new(VecDeque::new()) };
}

/// Returns the last observation by this process of the same subject. `seen` checks whether it still holds.
pub fn latest(plan: &Plan, side: Side) -> Option<Observation> {
    let of = subject(plan, side);
    LATEST.with_borrow(|all| all.iter().find(|(key, _)| *key == of).map(|(_, seen)| seen.clone()))
}

/// Keeps an observation for the next one of the same subject by this process.
pub fn keep(plan: &Plan, side: Side, seen: &Observation) {
    let of = subject(plan, side);
    LATEST.with_borrow_mut(|all| {
        all.retain(|(key, _)| *key != of);
        if is_whole(seen) {
            all.push_front((of, seen.clone()));
        }
        all.truncate(KEPT);
    });
}

/// Whether an observation may be kept. A missing table is in no list, so that its creation would not be noticed.
pub fn is_whole(seen: &Observation) -> bool {
    seen.kin.len() == LISTS.len()
        && seen.stamp.is_some()
        && seen.tables.iter().all(|table| table.oid.is_some())
}

/// Returns what an observation depends on, and where it is made.
pub fn subject(plan: &Plan, side: Side) -> String {
    let shard = side.shard(plan);
    let place = shard.conninfo.as_deref().unwrap_or_default();
    format!("{}\n{place}\n{}", shard.shard_key, asked_of(plan, side).join("\n"))
}

/// Returns the statements of the observation, of which one gives rows, to be sent with others.
pub fn statements(connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
    Ok(catalogs::statements(connection, "observe", &OBSERVE, &catalogs::given(&asked_of(plan, side)))?)
}

/// Returns the query's parameters.
fn asked_of(plan: &Plan, side: Side) -> [String; 8] {
    let [schemas, names, columns] = TableNames::keyed_lists(plan, side);
    let functions: Vec<String> =
        plan.tables.iter().map(|t| agent::trigger_function(plan.id, side, t.ordinal)).collect();
    let named = NamedThings::by(plan, side);
    [
        schemas,
        names,
        agent::trigger_prefix(plan.id, side),
        text_array(&functions),
        columns,
        named.schemas,
        named.names,
        named.columns,
    ]
}

/// Reads tables that belong to no split, each with its shard-by column, as a session sees them whose search_path is
/// the server's own schema.
pub fn tables(
    connection: &mut Connection,
    tables: &TableNames,
    columns: &[String],
) -> std::result::Result<Observation, RemoteError> {
    let nothing = text_array(&vec![String::new(); tables.names.len()]);
    let [schemas, names, columns] = tables.lists_with(columns);
    let parameters = [schemas.as_str(), &names, "", &nothing, &columns];
    let rows = catalogs::ask(connection, &query("NULL::json"), &catalogs::given(&parameters))?;
    serde_json::from_str(rows.scalar().unwrap_or_default())
        .map_err(|error| RemoteError::unreadable(connection.shard(), error))
}

/// Reads the shard's answer.
pub fn read(shard: &str, plan: &Plan, rows: &Rows) -> Result<Observation> {
    let json = rows.scalar().unwrap_or_default();
    let observation: Observation =
        serde_json::from_str(json).map_err(|error| RemoteError::unreadable(shard, error))?;
    if let Some(what) = &observation.endless {
        let text = format!("shard \"{shard}\": {what} is made of more types than a split examines");
        let hint = format!(
            "At most {PARTS} types in all, and {DEPTH} within each other, are examined. Change the table, or leave it out of the keyspace with shard_table_drop()."
        );
        return Err(SplitError::failed(SqlState::UNSUPPORTED, text, hint));
    }
    match observation.impossible(plan.tables.len()) {
        Some((what, text)) => Err(RemoteError::no_number(shard, what, &text).into()),
        None => Ok(observation),
    }
}
