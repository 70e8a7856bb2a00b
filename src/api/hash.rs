//! The shard of a key by its hash. It needs no catalog, so everybody may call it.

use crate::error::{invalid, required};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use shardmaster_client::{Key, shard_for};
use std::num::NonZeroU32;

fn shard<'a>(key: Option<impl Into<Key<'a>>>, shard_count: Option<i32>) -> Result<i32, ErrorReport> {
    let count = required(shard_count, "shard_count")?;
    let key = required(key, "key")?;
    match u32::try_from(count).ok().and_then(NonZeroU32::new) {
        Some(count) => Ok(shard_for(key, count) as i32),
        None => Err(not_positive(count)),
    }
}

#[cold]
fn not_positive(count: i32) -> ErrorReport {
    invalid("shard_count", format!("{count} is not positive")).into()
}

#[pg_extern(name = "shard_for", immutable, parallel_safe)]
pub fn shard_for_bigint(key: Option<i64>, shard_count: Option<i32>) -> Result<i32, ErrorReport> {
    shard(key, shard_count)
}

#[pg_extern(name = "shard_for", immutable, parallel_safe)]
pub fn shard_for_text(key: Option<&str>, shard_count: Option<i32>) -> Result<i32, ErrorReport> {
    shard(key, shard_count)
}

#[pg_extern(name = "shard_for", immutable, parallel_safe)]
pub fn shard_for_uuid(key: Option<Uuid>, shard_count: Option<i32>) -> Result<i32, ErrorReport> {
    shard(key.as_ref().map(|uuid| *uuid.as_bytes()), shard_count)
}

extension_sql_file!(
    "../../sql/comments/hash.sql",
    name = "comments_hash",
    requires = [shard_for_bigint, shard_for_text, shard_for_uuid]
);
