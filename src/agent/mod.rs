//! What is installed on a shard for one split: names, and the agent's SQL with the names filled in.

pub mod blocking_session;
pub mod blocks;
pub mod capture;
pub mod catalog_fingerprint;
pub mod catalogs;
pub mod check;
pub mod credential;
pub mod database_identity;
pub mod decisions;
pub mod deparsed;
pub mod dropped_shard;
pub mod error;
pub mod filter;
pub mod foreign_objects;
pub mod inquiry;
pub mod key_filter;
pub mod key_guard;
pub mod known_column;
pub mod lookup;
pub mod named;
pub mod native;
pub mod new_table;
pub mod observe;
pub mod observed_side;
pub mod one_database;
pub mod opening;
pub mod plain;
pub mod reading;
pub mod reference;
pub mod row_decision;
pub mod schema;
pub mod scope;
pub mod seen;
pub mod session;
pub mod session_hash;
pub mod shape;
pub mod short_lock;
pub mod state;
pub mod table_names;
pub mod temporary;
pub mod types;
pub mod untrusted_code;

use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::{changed, queue};
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::quote::ident;
use crate::remote::template::{TemplateValue, fill, number, sql, text, word};
use filter::Filter;
use std::sync::LazyLock;

/// A query for one number that covers all code that a side's tables could run.
pub static CODE: LazyLock<String> = LazyLock::new(|| format!("SELECT {}", code(["$3", "$4", "$5"])));
const GUARD: &str = include_str!("../../sql/agent/guard.sql");
const CHANGED: &str = include_str!("../../sql/agent/changed.sql");
const STRAY: &str = include_str!("../../sql/agent/stray.sql");
const IN_SCOPE: &str = include_str!("../../sql/agent/in_scope.sql");

/// The number of entries of a queue between two checks of its lease and size.
const SAMPLE: u32 = crate::native::SAMPLE;

/// Returns SQL for that number. The parameters are the lists of what texts name: schemas, names, columns.
pub fn code(lists: [&str; 3]) -> String {
    code_as(lists, include_str!("../../sql/agent/code_number.sql"))
}

fn code_as([schemas, names, columns]: [&str; 3], answer: &str) -> String {
    let members = "(SELECT m.oids FROM member m)::oid[]";
    let text = include_str!("../../sql/agent/code.sql");
    with_reaches(
        text,
        members,
        columns,
        &[("schemas", sql(schemas)), ("names", sql(names)), ("answer", sql(answer))],
    )
}

/// Returns SQL for that number with the facts that it was made of, as JSON.
pub fn code_facts(lists: [&str; 3]) -> String {
    code_as(lists, include_str!("../../sql/agent/code_facts.sql"))
}

/// Returns a query over tables ($1: schemas, $2: names) that follows what objects of the catalog reach. `members` are
/// the numbers of these tables, `columns` those whose texts are read if they are generated.
pub fn with_reaches(query: &str, members: &str, columns: &str, more: &[(&str, TemplateValue)]) -> String {
    let mut values = vec![("members", sql(members)), ("columns", sql(columns))];
    let parts = [
        ("reaches", include_str!("../../sql/agent/reaches.sql")),
        ("whole", include_str!("../../sql/agent/whole.sql")),
        ("generated", include_str!("../../sql/agent/generated.sql")),
    ];
    let parts = parts.map(|(name, part)| (name, sql(fill(part, &values))));
    values.extend(parts);
    values.extend_from_slice(more);
    fill(query, &values)
}

pub fn in_scope_function(split: i64, side: Side) -> String {
    format!("in_scope_{split}_{}", side.suffix())
}

/// Returns the name of the trigger function of one table on one side.
pub fn trigger_function(split: i64, side: Side, ordinal: i32) -> String {
    format!("{}{ordinal}", trigger_functions(split, side))
}

/// Returns the prefix of the names of a side's trigger functions.
pub fn trigger_functions(split: i64, side: Side) -> String {
    match side {
        Side::Source => format!("capture_{split}_"),
        Side::Target => format!("guard_{split}_"),
    }
}

/// Returns the prefix of the names of a side's triggers. Triggers fire in the order of their names: these before those
/// of foreign keys ("RI_Constraint..."), so that a client with an old route gets the error that the key has moved, not
/// that a row is missing.
pub fn trigger_prefix(split: i64, side: Side) -> String {
    format!("00_shardmaster_{split}_{}_", side.suffix())
}

/// Returns the keys of both versions of a row, as a function's arguments.
fn key_arguments(table: &TableShape) -> String {
    let types: Vec<&str> = table
        .key()
        .iter()
        .map(|key| table.column(key).map_or("text", |column| column.stored.as_str()))
        .collect();
    let of = |version: &str| {
        let arguments = types.iter().enumerate().map(|(n, name)| format!("{version}_{} {name}", n + 1));
        arguments.collect::<Vec<_>>().join(", ")
    };
    format!("{}, {}", of("new"), of("old"))
}

/// Returns the names of these arguments for one version, as a function uses them.
fn key_values(table: &TableShape, version: &str) -> String {
    (1..=table.key().len()).map(|n| format!("{version}_{n}")).collect::<Vec<_>>().join(", ")
}

/// Returns the guard functions of one table of the target, and the table where they note keys.
pub fn guard(plan: &Plan, ordinal: i32, table: &TableShape, shard_by: &Column) -> String {
    let log = fill(
        CHANGED,
        &[
            ("changed", word(changed::table(plan.id, ordinal))),
            ("key_definitions", sql(queue::key_definitions(table))),
            ("key_numbers", text(changed::key_of(table))),
            ("keys", sql(queue::keys(table).join(", "))),
        ],
    );
    let guard = fill(
        GUARD,
        &[
            ("function", word(trigger_function(plan.id, Side::Target, ordinal))),
            ("split", number(plan.id)),
            ("by_type", sql(shard_by.base.as_str())),
            ("arguments", sql(key_arguments(table))),
            ("shard", text(&plan.target.shard_key)),
            ("table", text(&table.name)),
            ("changed", word(changed::table(plan.id, ordinal))),
            ("keys", sql(queue::keys(table).join(", "))),
            ("same_key", sql(same_key(table))),
            ("max_bytes", number(guc::queue_max_bytes())),
            // The other half is for the values of deleted rows.
            ("max_values", number(guc::queue_max_bytes() / 2)),
            ("new_keys", sql(key_values(table, "new"))),
            ("old_keys", sql(key_values(table, "old"))),
        ],
    );
    format!("{log}\n{guard}")
}

/// Returns an SQL condition: a noted key `c` is that of a row before its change, by the equality of the key's own
/// index.
fn same_key(table: &TableShape) -> String {
    let conditions = table.key().iter().zip(table.key_equality()).zip(1..).map(|((key, equality), n)| {
        let collation = table.column(key).and_then(|column| column.collation.as_deref());
        let collate = collation.map(|name| format!(" COLLATE {name}")).unwrap_or_default();
        equality.of(&format!("c.k{n}"), &format!("(old_{n}{collate})"))
    });
    conditions.collect::<Vec<_>>().join(" AND ")
}

/// Returns the function that a session of the mover on the target calls for rows that it must not insert.
pub fn stray(plan: &Plan) -> String {
    fill(STRAY, &[("split", number(plan.id)), ("other_shard", text(&plan.source.shard_key))])
}

/// Returns the look-up function for one type of shard-by column.
pub fn in_scope(plan: &Plan, side: Side, type_name: &str, filter: Option<&Filter>) -> String {
    let filter = filter.map_or(String::new(), |filter| {
        format!("IF {} OPERATOR(pg_catalog.=) 0 THEN RETURN false; END IF;", filter.test("wanted"))
    });
    fill(
        IN_SCOPE,
        &[
            ("function", word(in_scope_function(plan.id, side))),
            ("scope", word(state::scope::table(plan.id, side))),
            ("match", sql(plan.scope.matches("wanted"))),
            ("type", sql(type_name)),
            ("filter", sql(filter)),
        ],
    )
}

/// Returns the condition that one of the row versions that a trigger sees is in the scope. It keeps the trigger from
/// being called for other rows.
fn when_clause(plan: &Plan, side: Side, column: &Column, rows: &[&str]) -> String {
    let values: Vec<String> = rows.iter().map(|row| format!("{row}.{}", ident(&column.name))).collect();
    if let Some(condition) = plan.scope.condition(&values, column, row_decision::LITERAL_BYTES) {
        return condition;
    }
    let found = |value: &str| format!("shardmaster_agent.{}({value})", in_scope_function(plan.id, side));
    match values.as_slice() {
        [new, old] => format!("{} OR ({old} IS DISTINCT FROM {new} AND {})", found(new), found(old)),
        _ => values.iter().map(|value| found(value)).collect::<Vec<_>>().join(" OR "),
    }
}

/// The kinds of a side's triggers; a letter in the name stands for the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerEvent {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl TriggerEvent {
    /// The kinds that fire for rows. The server clones them from a partitioned table to its partitions, also to those
    /// that are added later.
    pub const ROW: [TriggerEvent; 3] = [TriggerEvent::Insert, TriggerEvent::Update, TriggerEvent::Delete];
    pub const ALL: [TriggerEvent; 4] =
        [TriggerEvent::Insert, TriggerEvent::Update, TriggerEvent::Delete, TriggerEvent::Truncate];

    fn letter(self) -> char {
        match self {
            TriggerEvent::Insert => 'i',
            TriggerEvent::Update => 'u',
            TriggerEvent::Delete => 'd',
            TriggerEvent::Truncate => 't',
        }
    }

    fn name(self) -> &'static str {
        match self {
            TriggerEvent::Insert => "INSERT",
            TriggerEvent::Update => "UPDATE",
            TriggerEvent::Delete => "DELETE",
            TriggerEvent::Truncate => "TRUNCATE",
        }
    }
}

/// Returns the name of one of a side's triggers, not quoted. It contains the table's number: a table that becomes a
/// partition of another has its own trigger beside the clones of the other's.
pub fn trigger_name(split: i64, side: Side, ordinal: i32, event: TriggerEvent) -> String {
    format!("{}{}_{ordinal}", trigger_prefix(split, side), event.letter())
}

/// Returns the call that a row's trigger makes with the values of both versions. If only one version exists, it stands
/// for both: the function then has no change to detect.
fn row_call(
    plan: &Plan,
    side: Side,
    watched: WatchedTable<'_>,
    rows: &[&str],
    event: TriggerEvent,
) -> String {
    let WatchedTable { shape, shard_by, ordinal, .. } = watched;
    let new = rows.first().copied().unwrap_or("NEW");
    let old = rows.last().copied().unwrap_or("OLD");
    let columns = |version: &str| {
        let of = |column: &String| format!("{version}.{}", ident(column));
        shape.key().iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let by = ident(&shard_by.name);
    format!(
        "shardmaster_agent.{}_row('{}', {new}.{by}, {old}.{by}, {}, {})",
        trigger_function(plan.id, side, ordinal),
        event.letter().to_ascii_uppercase(),
        columns(new),
        columns(old)
    )
}

/// The table that triggers are made for, as a side has it.
#[derive(Clone, Copy)]
pub struct WatchedTable<'a> {
    pub shape: &'a TableShape,
    pub shard_by: &'a Column,
    pub ordinal: i32,
    /// The table's function is native: its triggers for rows are on the table itself, not on its partitions.
    pub is_native: bool,
}

/// Returns one trigger of a table or partition, created and set to fire always, which clones inherit. Triggers for
/// rows do all their work in their conditions, except native ones.
pub fn trigger(
    plan: &Plan,
    side: Side,
    watched: WatchedTable<'_>,
    table: &str,
    event: TriggerEvent,
) -> String {
    let WatchedTable { shard_by, ordinal, .. } = watched;
    let name = ident(&trigger_name(plan.id, side, ordinal, event));
    let function = trigger_function(plan.id, side, ordinal);
    let rows: &[&str] = match event {
        TriggerEvent::Insert => &["NEW"],
        TriggerEvent::Update => &["NEW", "OLD"],
        TriggerEvent::Delete => &["OLD"],
        TriggerEvent::Truncate => &[],
    };
    // On the target, and on the source of a reverse split, which is that target, most writes are the mover's, row by
    // row of a copy. On other sources they are clients', for whom each condition costs time.
    let unless = match (side, plan.reverse_of) {
        (Side::Target, _) | (Side::Source, Some(_)) => {
            format!("NOT shardmaster_agent.is_mover({}, NULL, NULL) AND ", plan.id)
        }
        (Side::Source, None) => String::new(),
    };
    let fires = match event {
        TriggerEvent::Truncate => "FOR EACH STATEMENT".to_owned(),
        TriggerEvent::Insert | TriggerEvent::Update | TriggerEvent::Delete => {
            let scope = if side == Side::Source && row_decision::is_judged_within(plan, shard_by) {
                String::new()
            } else {
                format!("({}) AND ", when_clause(plan, side, shard_by, rows))
            };
            format!("FOR EACH ROW WHEN ({unless}{scope}{})", row_call(plan, side, watched, rows, event))
        }
    };
    format!(
        "CREATE TRIGGER {name} AFTER {} ON {table} {fires}
             EXECUTE FUNCTION shardmaster_agent.{function}();
         ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};",
        event.name()
    )
}
