//! What is installed on a shard for one split: names, and the agent's SQL with the
//! names filled in.

pub mod error;
pub mod filter;
pub mod observe;
pub mod one_database;
pub mod owners;
pub mod place;
pub mod plain;
pub mod redirect;
pub mod scope;
pub mod session;
pub mod session_hash;
pub mod shape;
pub mod state;
mod template;
pub mod types;

use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::quote::{ident, literal};
use filter::Filter;
use std::sync::LazyLock;
use template::fill;

pub const BOOTSTRAP: &str = concat!(
    include_str!("../../sql/agent/trust.sql"),
    include_str!("../../sql/agent/bootstrap.sql"),
    include_str!("../../sql/agent/redirect.sql")
);
/// What a side's tables could run, as one number; a query.
pub static CODE: LazyLock<String> = LazyLock::new(|| format!("SELECT {}", code("$3", "$4")));
const QUEUE: &str = include_str!("../../sql/agent/queue.sql");
const CAPTURE: &str = include_str!("../../sql/agent/capture.sql");
const REFUSE: &str = include_str!("../../sql/agent/refuse.sql");
const GUARD: &str = include_str!("../../sql/agent/guard.sql");
const GONE: &str = include_str!("../../sql/agent/gone.sql");
const STRAY: &str = include_str!("../../sql/agent/stray.sql");
const IN_SCOPE: &str = include_str!("../../sql/agent/in_scope.sql");

/// Bytes up to which a WHEN clause lists the keys: it is read anew for each statement
/// that touches the table, so a longer list costs more than a look-up.
const LITERAL_BYTES: usize = 200;
/// Entries of a queue between two looks at its lease and size.
const SAMPLE: u32 = 64;

/// As a value. The lists of what texts name are these parameters.
pub fn code(schemas: &str, names: &str) -> String {
    let text = with_reaches(include_str!("../../sql/agent/code.sql"));
    text.replace("{schemas}", schemas).replace("{names}", names)
}

/// A query that follows what objects of the catalog reach.
pub fn with_reaches(query: &str) -> String {
    query.replace("{reaches}", include_str!("../../sql/agent/reaches.sql"))
}

fn suffix(side: Side) -> &'static str {
    match side {
        Side::Source => "s",
        Side::Target => "t",
    }
}

/// The table of the scope's keys.
pub fn scope_table(split: i64, side: Side) -> String {
    format!("scope_{split}_{}", suffix(side))
}

pub fn in_scope_function(split: i64, side: Side) -> String {
    format!("in_scope_{split}_{}", suffix(side))
}

pub fn queue_table(split: i64, ordinal: i32) -> String {
    format!("queue_{split}_{ordinal}")
}

/// A sequence that nobody draws from: its value says at once to all sessions whether the
/// queues of a split take entries (1) or not (2), whatever becomes of the transaction that
/// has set it.
pub fn queue_sequence(split: i64) -> String {
    format!("queue_{split}_seq")
}

/// The table that stands between writers and the cutover: each capturing transaction holds
/// it shared, the fence alone.
pub fn barrier(split: i64) -> String {
    format!("shardmaster_agent.{}", barrier_table(split))
}

fn barrier_table(split: i64) -> String {
    format!("barrier_{split}")
}

/// The trigger function of one table on one side.
pub fn trigger_function(split: i64, side: Side, ordinal: i32) -> String {
    format!("{}{ordinal}", trigger_functions(split, side))
}

/// What the names of a side's trigger functions begin with.
pub fn trigger_functions(split: i64, side: Side) -> String {
    match side {
        Side::Source => format!("capture_{split}_"),
        Side::Target => format!("guard_{split}_"),
    }
}

/// What the names of a side's triggers begin with. Triggers fire in the order of their
/// names: ours before those of foreign keys ("RI_Constraint..."), so that a client with
/// an old route is told that the key has moved, not that a row is missing.
pub fn trigger_prefix(split: i64, side: Side) -> String {
    format!("00_shardmaster_{split}_{}_", suffix(side))
}

/// The columns of a queue that hold the key.
pub fn queue_keys(table: &TableShape) -> Vec<String> {
    (1..=table.key().len()).map(|n| format!("k{n}")).collect()
}

/// The target's table of keys that clients have taken away since it opened.
pub fn gone_table(split: i64, ordinal: i32) -> String {
    format!("gone_{split}_{ordinal}")
}

/// The key's columns as an agent's table has them.
fn key_definitions(table: &TableShape) -> String {
    let definitions: Vec<String> = queue_keys(table)
        .iter()
        .zip(table.key())
        .map(|(name, key)| {
            let column = table.column(key);
            // Without domains: one that is NOT NULL would refuse the entry of a TRUNCATE.
            let type_name = column.map_or("text", |c| c.stored.as_str());
            let collation = column.and_then(|c| c.collation.as_deref());
            let collate = collation.map(|c| format!(" COLLATE {c}")).unwrap_or_default();
            format!("{name} {type_name}{collate}")
        })
        .collect();
    definitions.join(",\n    ")
}

/// The queue of a captured table.
pub fn queue(split: i64, ordinal: i32, table: &TableShape) -> String {
    fill(QUEUE, &[("queue", queue_table(split, ordinal)), ("key_definitions", key_definitions(table))])
}

/// Bytes of all queues of a split: which of them an entry that looks belongs to, chance says.
fn queue_sizes(plan: &Plan) -> String {
    let sizes: Vec<String> = plan
        .tables
        .iter()
        .map(|table| {
            let queue = queue_table(plan.id, table.ordinal);
            format!("pg_catalog.pg_relation_size('shardmaster_agent.{queue}'::pg_catalog.regclass, 'main')")
        })
        .collect();
    sizes.join(" OPERATOR(pg_catalog.+) ")
}

/// What every writer of a split looks at: the barrier, and whether the queues are open.
pub fn create_barrier(split: i64) -> String {
    let sequence = queue_sequence(split);
    format!(
        "CREATE TABLE IF NOT EXISTS {} (); CREATE SEQUENCE IF NOT EXISTS shardmaster_agent.{sequence};
         SELECT setval('shardmaster_agent.{sequence}', 1) FROM shardmaster_agent.{sequence} WHERE NOT is_called",
        barrier(split)
    )
}

/// Lets the queue take entries again.
pub fn reopen_queue(split: i64) -> String {
    format!("SELECT setval('shardmaster_agent.{}', 1)", queue_sequence(split))
}

/// Under which the queue takes an entry.
fn if_captured(split: i64) -> String {
    format!(
        "FROM shardmaster_agent.side WHERE split_id OPERATOR(pg_catalog.=) {split}
            AND side OPERATOR(pg_catalog.=) 'source' AND state OPERATOR(pg_catalog.=) 'capture'"
    )
}

/// What the capture function of one table calls to refuse a writer.
pub fn refuse_function(split: i64, ordinal: i32) -> String {
    format!("refuse_{split}_{ordinal}")
}

/// The keys of both versions of a row, as a function's arguments.
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

/// The same arguments where they are used.
fn key_values(table: &TableShape, version: &str) -> String {
    (1..=table.key().len()).map(|n| format!("{version}_{n}")).collect::<Vec<_>>().join(", ")
}

/// The capture functions of one table of the source, and what they call.
pub fn capture(plan: &Plan, ordinal: i32, table: &TableShape, shard_by: &Column) -> String {
    let refuse = fill(
        REFUSE,
        &[
            ("function", refuse_function(plan.id, ordinal)),
            ("split", plan.id.to_string()),
            ("scope", scope_table(plan.id, Side::Source)),
            ("match", plan.scope.matches("wanted")),
            ("type", shard_by.base.clone()),
            ("shard", literal(&plan.source.shard_key)),
            ("other_shard", literal(&plan.target.shard_key)),
        ],
    );
    let capture = fill(
        CAPTURE,
        &[
            ("function", trigger_function(plan.id, Side::Source, ordinal)),
            ("refuse", refuse_function(plan.id, ordinal)),
            ("split", plan.id.to_string()),
            ("barrier", barrier_table(plan.id)),
            ("by_type", shard_by.base.clone()),
            ("arguments", key_arguments(table)),
            ("queue_keys", queue_keys(table).join(", ")),
            ("queue", queue_table(plan.id, ordinal)),
            ("queue_sizes", queue_sizes(plan)),
            ("sample", SAMPLE.to_string()),
            ("sequence", queue_sequence(plan.id)),
            ("if_captured", if_captured(plan.id)),
            ("new_keys", key_values(table, "new")),
            ("old_keys", key_values(table, "old")),
            ("no_keys", vec!["NULL"; table.key().len() * 2].join(", ")),
        ],
    );
    format!("{refuse}\n{capture}")
}

/// The guard functions of one table of the target, and where they note keys.
pub fn guard(plan: &Plan, ordinal: i32, table: &TableShape, shard_by: &Column) -> String {
    let gone = fill(
        GONE,
        &[
            ("gone", gone_table(plan.id, ordinal)),
            ("key_definitions", key_definitions(table)),
            ("keys", queue_keys(table).join(", ")),
        ],
    );
    let guard = fill(
        GUARD,
        &[
            ("function", trigger_function(plan.id, Side::Target, ordinal)),
            ("split", plan.id.to_string()),
            ("by_type", shard_by.base.clone()),
            ("arguments", key_arguments(table)),
            ("shard", literal(&plan.target.shard_key)),
            ("gone", gone_table(plan.id, ordinal)),
            ("gone_keys", queue_keys(table).join(", ")),
            ("max_bytes", guc::queue_max_bytes().to_string()),
            ("new_keys", key_values(table, "new")),
            ("old_keys", key_values(table, "old")),
        ],
    );
    format!("{gone}\n{guard}")
}

/// What a session of the mover on the target calls for rows that it is not to take.
pub fn stray(plan: &Plan) -> String {
    fill(STRAY, &[("split", plan.id.to_string()), ("other_shard", literal(&plan.source.shard_key))])
}

/// The look-up function for one type of shard-by column.
pub fn in_scope(plan: &Plan, side: Side, type_name: &str, filter: Option<&Filter>) -> String {
    let filter = filter.map_or(String::new(), |filter| {
        format!("IF {} OPERATOR(pg_catalog.=) 0 THEN RETURN false; END IF;", filter.test("wanted"))
    });
    fill(
        IN_SCOPE,
        &[
            ("function", in_scope_function(plan.id, side)),
            ("scope", scope_table(plan.id, side)),
            ("match", plan.scope.matches("wanted")),
            ("type", type_name.to_owned()),
            ("filter", filter),
        ],
    )
}

/// Whether one of the row versions that a trigger sees is in the scope: the condition
/// that keeps the trigger from being called for the others.
fn when_clause(plan: &Plan, side: Side, column: &Column, rows: &[&str]) -> String {
    let values: Vec<String> = rows.iter().map(|row| format!("{row}.{}", ident(&column.name))).collect();
    if let Some(condition) = plan.scope.condition(&values, column, LITERAL_BYTES) {
        return condition;
    }
    let found = |value: &str| format!("shardmaster_agent.{}({value})", in_scope_function(plan.id, side));
    match values.as_slice() {
        [new, old] => format!("{} OR ({old} IS DISTINCT FROM {new} AND {})", found(new), found(old)),
        _ => values.iter().map(|value| found(value)).collect::<Vec<_>>().join(" OR "),
    }
}

/// The kinds of a side's triggers, by the letter that ends their name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl Event {
    /// Those that fire for rows. The server clones them from a partitioned table to its
    /// partitions, also to those that come later.
    pub const ROW: [Event; 3] = [Event::Insert, Event::Update, Event::Delete];
    pub const ALL: [Event; 4] = [Event::Insert, Event::Update, Event::Delete, Event::Truncate];

    fn letter(self) -> char {
        match self {
            Event::Insert => 'i',
            Event::Update => 'u',
            Event::Delete => 'd',
            Event::Truncate => 't',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Event::Insert => "INSERT",
            Event::Update => "UPDATE",
            Event::Delete => "DELETE",
            Event::Truncate => "TRUNCATE",
        }
    }
}

/// The name of one of a side's triggers, not quoted.
pub fn trigger_name(split: i64, side: Side, event: Event) -> String {
    format!("{}{}", trigger_prefix(split, side), event.letter())
}

/// What a row's trigger calls with the values of both versions, those that there are.
fn row_call(plan: &Plan, side: Side, ordinal: i32, shape: &TableShape, by: &Column, event: Event) -> String {
    let has = |version: &str| match event {
        Event::Insert => version == "NEW",
        Event::Delete => version == "OLD",
        Event::Update | Event::Truncate => true,
    };
    let value = |version: &str, column: &str| match has(version) {
        true => format!("{version}.{}", ident(column)),
        false => "NULL".to_owned(),
    };
    let mut values = vec![value("NEW", &by.name), value("OLD", &by.name)];
    for version in ["NEW", "OLD"] {
        values.extend(shape.key().iter().map(|column| value(version, column)));
    }
    let letter = event.letter().to_ascii_uppercase();
    let function = trigger_function(plan.id, side, ordinal);
    format!("shardmaster_agent.{function}_row('{letter}', {})", values.join(", "))
}

/// The table whose triggers are made, as a side has it.
#[derive(Clone, Copy)]
pub struct Watched<'a> {
    pub shape: &'a TableShape,
    pub shard_by: &'a Column,
    pub ordinal: i32,
}

/// One trigger of a table or partition, created and made to fire always. That it fires
/// always goes over to clones. Those for rows do all there is to do in their conditions.
pub fn trigger(plan: &Plan, side: Side, watched: Watched<'_>, table: &str, event: Event) -> String {
    let Watched { shape, shard_by, ordinal } = watched;
    let name = ident(&trigger_name(plan.id, side, event));
    let function = trigger_function(plan.id, side, ordinal);
    let rows: &[&str] = match event {
        Event::Insert => &["NEW"],
        Event::Update => &["NEW", "OLD"],
        Event::Delete => &["OLD"],
        Event::Truncate => &[],
    };
    // On the target it is the mover that writes, row by row of a copy. On the source it is
    // clients, whom each condition costs.
    let unless = match side {
        Side::Target => format!("NOT shardmaster_agent.is_mover({}, NULL, NULL) AND ", plan.id),
        Side::Source => String::new(),
    };
    let fires = match event {
        Event::Truncate => "FOR EACH STATEMENT".to_owned(),
        Event::Insert | Event::Update | Event::Delete => format!(
            "FOR EACH ROW WHEN ({unless}({}) AND {})",
            when_clause(plan, side, shard_by, rows),
            row_call(plan, side, ordinal, shape, shard_by, event)
        ),
    };
    format!(
        "CREATE TRIGGER {name} AFTER {} ON {table} {fires}
             EXECUTE FUNCTION shardmaster_agent.{function}();
         ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};",
        event.name()
    )
}
