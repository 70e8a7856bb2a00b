//! The tables `changed_<split>_<table>`, on a target: keys of rows that its clients have changed
//! since it opened. The guard's trigger writes them.

use super::drop_tables;
use crate::agent::error::Result;
use crate::remote::Connection;

pub fn table(split: i64, ordinal: i32) -> String {
    format!("changed_{split}_{ordinal}")
}

pub fn qualified(split: i64, ordinal: i32) -> String {
    format!("shardmaster_agent.{}", table(split, ordinal))
}

pub fn drop(connection: &mut Connection, split: i64) -> Result<()> {
    Ok(drop_tables(connection, &format!("changed_{split}_"))?)
}
