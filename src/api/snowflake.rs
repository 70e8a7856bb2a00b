//! Identifiers that are unique across machines.

use crate::error::{invalid, required};
use crate::snowflake;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use shardmaster_client::snowflake::parts;

/// The milliseconds between the epochs of Unix and of PostgreSQL.
const POSTGRES_EPOCH: i64 = 946_684_800_000;

/// It has no SECURITY DEFINER and no settings, which would cost more than the call.
#[pg_extern(volatile, parallel_safe)]
pub fn shard_snowflake_id() -> Result<i64, ErrorReport> {
    Ok(snowflake::generate()?)
}

#[allow(clippy::type_complexity)]
#[pg_extern(stable, parallel_safe)]
pub fn shard_snowflake_parts(
    id: Option<i64>,
) -> Result<
    TableIterator<
        'static,
        (name!(created_at, Option<TimestampWithTimeZone>), name!(machine_id, i32), name!(sequence, i32)),
    >,
    ErrorReport,
> {
    let id = required(id, "id")?;
    let Some(parts) = parts(id) else {
        return Err(invalid("id", format!("{id} is negative")).into());
    };
    let epoch = snowflake::unix_epoch()?;
    let unix = i64::try_from(epoch + parts.millisecond).unwrap_or(i64::MAX);
    let created_at = TimestampWithTimeZone::try_from((unix - POSTGRES_EPOCH) * 1_000).ok();
    Ok(TableIterator::once((created_at, parts.machine.into(), parts.sequence.into())))
}

extension_sql_file!(
    "../../sql/comments/snowflake.sql",
    name = "comments_snowflake",
    requires = [shard_snowflake_id, shard_snowflake_parts]
);
