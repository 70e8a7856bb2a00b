//! The tables `changed_<split>_<table>`, on a target: keys of rows that its clients have changed since it opened. The
//! guard's trigger writes them.

use super::drop_tables;
use crate::agent::error::Result;
use crate::agent::shape::TableShape;
use crate::remote::Connection;

pub fn table(split: i64, ordinal: i32) -> String {
    format!("changed_{split}_{ordinal}")
}

pub fn qualified(split: i64, ordinal: i32) -> String {
    format!("shardmaster_agent.{}", table(split, ordinal))
}

/// Returns a key by the numbers of its columns, as in the table's comment: names may change.
pub fn key_of(table: &TableShape) -> String {
    let numbers = table.key().iter().map(|name| table.column(name).map_or("none", |column| &column.number));
    format!("key {}", numbers.collect::<Vec<_>>().join(", "))
}

pub fn drop(connection: &mut Connection, split: i64) -> Result<()> {
    Ok(drop_tables(connection, &format!("changed_{split}_"))?)
}
