//! Computed columns whose value changes from one read to the next: the time of day, a setting. Such a column is filled
//! once and never compared.

use super::columns::{ColumnMapping, ColumnSource};
use crate::agent::error::Result;
use crate::remote::Connection;

const STEADY: &str = include_str!("../../../sql/check/steady.sql");

/// Whether what fills a column always gives the same value for a row.
pub fn is_steady(source: &mut Connection, table: &str, pair: &ColumnMapping) -> Result<bool> {
    let ColumnSource::Expression(_) = &pair.source else { return Ok(true) };
    let view = format!(
        "CREATE TEMPORARY VIEW shardmaster_expression AS SELECT {} AS computed FROM {table} t",
        pair.select()
    );
    let answer = source.undone(|source| source.query(&view, &[]).and_then(|_| source.run(STEADY)))?;
    Ok(answer.is_true())
}
