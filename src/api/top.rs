//! The keys that are worth moving.

use super::arguments::{invalid, longest_wait};
use super::row;
use super::rows::{Columns, RowSet};
use crate::error::{Failure, required};
use crate::query::run::require_fit;
use crate::query::top::{Silent, Top, TopOrder, TopQuery};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The greatest number of lines: more than anybody reads.
const MOST: i32 = 1000;

/// SECURITY INVOKER: shards are asked as the caller's login.
#[pg_extern(volatile, parallel_unsafe, requires = ["rows"])]
pub fn shard_top(
    keyspace: default!(Option<String>, "'default'"),
    shard: default!(Option<String>, "NULL"),
    most: default!(Option<i32>, "20"),
    by: default!(Option<String>, "'rows'"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<RowSet<row::Top>, ErrorReport> {
    require_fit("shard_top")?;
    let keyspace = required(keyspace, "keyspace")?;
    let most = required(most, "most")?;
    if !(1..=MOST).contains(&most) {
        return Err(invalid("most", format!("{most} is not between 1 and {MOST}")).into());
    }
    let by = required(by, "by")?;
    let by = TopOrder::from_name(&by).ok_or_else(|| {
        let failure: Failure = invalid("by", format!("unrecognized figure \"{by}\""));
        failure.hint("Figures are rows, bytes and writes.")
    })?;
    let (most, timeout) = (most as usize, longest_wait(timeout)?);
    let asked = TopQuery { keyspace: &keyspace, shard: shard.as_deref(), most, by, timeout };
    let (top, silent) = asked.ask()?;
    Ok(RowSet::new(silent.into_iter().map(of_silent).chain(top.into_iter().map(of_key))))
}

fn of_key(top: Top) -> Columns<row::Top> {
    let Top { shard, found, routed_to } = top;
    let share = (found.share * 10.0).round() / 10.0;
    let figures = (Some(found.rows), Some(found.rows_error), Some(found.bytes), Some(found.writes));
    (Some(found.key), shard, figures.0, figures.1, figures.2, figures.3, Some(share), routed_to, None)
}

/// Returns the line for a shard that has not answered. It comes first, because the lines after it are incomplete.
fn of_silent(silent: Silent) -> Columns<row::Top> {
    (None, silent.shard, None, None, None, None, None, None, Some(silent.why.message))
}

extension_sql_file!("../../sql/comments/top.sql", name = "comments_top", requires = [shard_top]);
