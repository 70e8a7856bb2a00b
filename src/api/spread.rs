//! Gives each shard numbers of its own.

use super::arguments::{invalid, longest_wait};
use super::{STAYS, on_primary, outside_transaction};
use crate::error::required;
use crate::numbers::block::Blocks;
use crate::numbers::spread::Spread;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_sequences_spread(
    keyspace: default!(Option<String>, "'default'"),
    block: default!(Option<i64>, "1099511627776"),
    below: default!(Option<i64>, "9007199254740992"),
    dry_run: default!(Option<bool>, "false"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(shard, String),
            name!(sequence, String),
            name!(first, i64),
            name!(last, i64),
            name!(outcome, String),
        ),
    >,
    ErrorReport,
> {
    on_primary("shard_sequences_spread")?;
    outside_transaction("shard_sequences_spread", STAYS)?;
    let (keyspace, size, below) =
        (required(keyspace, "keyspace")?, required(block, "block")?, required(below, "below")?);
    if size < 1000 {
        return Err(invalid("block", "it contains less than 1000 numbers").into());
    }
    if below <= size {
        return Err(invalid("below", "no block precedes it").into());
    }
    let spread = Spread {
        keyspace: &keyspace,
        blocks: Blocks { size, below },
        dry_run: required(dry_run, "dry_run")?,
        timeout: longest_wait(timeout)?,
    };
    let lines = spread.run()?;
    Ok(TableIterator::new(
        lines.into_iter().map(|line| (line.shard, line.sequence, line.first, line.last, line.outcome)),
    ))
}

extension_sql_file!(
    "../../sql/comments/spread.sql",
    name = "comments_spread",
    requires = [shard_sequences_spread]
);
