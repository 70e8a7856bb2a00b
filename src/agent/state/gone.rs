//! The tables `gone_<split>_<table>`, on a target: keys that its clients have taken away since
//! it opened. The guard's trigger writes them.

use super::drop_tables;
use crate::agent::error::Result;
use crate::remote::Connection;

pub fn table(split: i64, ordinal: i32) -> String {
    format!("gone_{split}_{ordinal}")
}

pub fn qualified(split: i64, ordinal: i32) -> String {
    format!("shardmaster_agent.{}", table(split, ordinal))
}

pub fn drop(connection: &mut Connection, split: i64) -> Result<()> {
    Ok(drop_tables(connection, &format!("gone_{split}_"))?)
}
