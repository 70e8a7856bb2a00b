//! Rows of `shardmaster.number_block`: the numbers that only one shard gives out.

use super::caller::Caller;
use super::local;
use crate::server::sql;

/// A block as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenBlock {
    pub shard_key: String,
    pub range: [i64; 2],
}

impl GivenBlock {
    pub fn has(&self, [first, last]: [i64; 2]) -> bool {
        self.range[0] <= first && last <= self.range[1]
    }
}

/// Locks the blocks until the transaction ends: no other session gives one out meanwhile, so what is read of them
/// holds.
pub fn lock() {
    sql::write("LOCK TABLE shardmaster.number_block IN SHARE ROW EXCLUSIVE MODE", &[]);
}

/// Returns all blocks, of every keyspace: their sequences may be shared.
pub fn all() -> Vec<GivenBlock> {
    sql::read_latest(
        "SELECT shard_key, first, last FROM shardmaster.number_block ORDER BY first, shard_key COLLATE \"C\"",
        &[],
        |row| GivenBlock { shard_key: row.value(1), range: [row.value(2), row.value(3)] },
    )
}

/// Returns all blocks for any caller. Returns none if the catalog is that of an earlier version.
pub fn known() -> Vec<GivenBlock> {
    Caller::as_owner(|_| if local::has_table("number_block") { all() } else { Vec::new() })
}

pub fn insert(keyspace: &str, given: &GivenBlock) {
    sql::write(
        "INSERT INTO shardmaster.number_block (keyspace, shard_key, first, last) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
        &[keyspace.into(), given.shard_key.as_str().into(), given.range[0].into(), given.range[1].into()],
    );
}
