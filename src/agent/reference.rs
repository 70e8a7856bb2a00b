//! The objects of reference tables on shards: names, and the agent's SQL with the names filled in. Sets and tables
//! have numbers of the master, which are not reused while a shard has something of them.

use super::shape::{Column, TableShape};
use super::state::queue;
use super::{SAMPLE, TriggerEvent, key_arguments, key_values};
use crate::remote::quote::{ident, literal};
use crate::remote::template::{fill, number, sql, word};

const CAPTURE: &str = include_str!("../../sql/agent/reference_capture.sql");

/// Returns the name of the function that puts keys of one table into its queue.
pub fn capture_function(set: i64, ordinal: i32) -> String {
    format!("reference_capture_{set}_{ordinal}")
}

pub fn queue_name(set: i64, ordinal: i32) -> String {
    format!("reference_queue_{set}_{ordinal}")
}

pub fn queue_table(set: i64, ordinal: i32) -> String {
    format!("shardmaster_agent.{}", queue_name(set, ordinal))
}

/// Returns the prefixes of the names of a set's triggers, functions and queues, before the numbers of its tables.
pub fn prefixes(set: i64) -> [String; 3] {
    let of = |what: &str| format!("{what}_{set}_");
    [of("00_shardmaster_reference"), of("reference_capture"), of("reference_queue")]
}

/// Returns the name of a sequence that is never drawn from: its value is 1 if the queues of a set take entries, and 2
/// if not.
pub fn sequence(set: i64) -> String {
    format!("reference_queue_{set}_seq")
}

/// Returns the prefix of the names of one table's triggers; they fire before those of foreign keys.
pub fn trigger_prefix(set: i64, ordinal: i32) -> String {
    format!("00_shardmaster_reference_{set}_{ordinal}")
}

/// Returns the queue of a table, and what fills it; each statement can be repeated.
pub fn capture(set: i64, ordinal: i32, shape: &TableShape) -> String {
    let arguments = key_arguments(shape);
    let types: Vec<&str> =
        arguments.split(", ").filter_map(|argument| argument.split_once(' ').map(|(_, name)| name)).collect();
    let function = fill(
        CAPTURE,
        &[
            ("function", word(capture_function(set, ordinal))),
            ("arguments", sql(arguments.as_str())),
            ("types", sql(types.join(", "))),
            ("sequence", word(sequence(set))),
            ("queue", word(queue_name(set, ordinal))),
            ("queue_keys", sql(queue::keys(shape).join(", "))),
            ("new_keys", sql(key_values(shape, "new"))),
            ("old_keys", sql(key_values(shape, "old"))),
            ("sample", number(SAMPLE)),
            ("set", number(set)),
        ],
    );
    format!("{}; {function}", queue::definition(&queue_name(set, ordinal), shape))
}

/// Returns the numbers of the key's columns, in their order: they show later which key a trigger was made for.
fn key_numbers(shape: &TableShape) -> String {
    let key = shape.key().iter().filter_map(|name| shape.column(name));
    key.map(Column::attribute).collect::<Vec<_>>().join(" ")
}

/// Returns the triggers of a table on its origin.
pub fn capture_triggers(set: i64, ordinal: i32, shape: &TableShape) -> String {
    let trigger = |event: TriggerEvent| {
        let has = |version: &str| match event {
            TriggerEvent::Insert => version == "NEW",
            TriggerEvent::Delete => version == "OLD",
            TriggerEvent::Update | TriggerEvent::Truncate => true,
        };
        let value = |version: &str, column: &String| {
            if has(version) { format!("{version}.{}", ident(column)) } else { "NULL".to_owned() }
        };
        let values: Vec<String> = ["NEW", "OLD"]
            .iter()
            .flat_map(|version| shape.key().iter().map(|column| value(version, column)))
            .collect();
        let (letter, table) = (event.letter(), &shape.name);
        let name = ident(&format!("{}_{letter}", trigger_prefix(set, ordinal)));
        format!(
            "CREATE TRIGGER {name} AFTER {} ON {table} FOR EACH ROW WHEN (shardmaster_agent.{}('{}', {}))
                 EXECUTE FUNCTION shardmaster_agent.reference_captured('{}');
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
            event.name(),
            capture_function(set, ordinal),
            letter.to_ascii_uppercase(),
            values.join(", "),
            key_numbers(shape)
        )
    };
    TriggerEvent::ROW.map(trigger).join("; ")
}

/// Returns the trigger of a copy.
pub fn guard_trigger(set: i64, ordinal: i32, table: &str, origin: &str) -> String {
    let name = ident(&trigger_prefix(set, ordinal));
    format!(
        "CREATE TRIGGER {name} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT
             EXECUTE FUNCTION shardmaster_agent.reference_guard({set}, {});
         ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
        literal(origin)
    )
}
