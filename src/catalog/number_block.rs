//! Rows of `shardmaster.number_block`: which numbers a shard alone gives out.

use super::caller::Caller;
use crate::server::sql;

/// A block as it is written down.
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

/// Locks the blocks until the transaction ends, so that what is read of them holds: nobody else gives one out meanwhile.
pub fn lock() {
    sql::write("LOCK TABLE shardmaster.number_block IN SHARE ROW EXCLUSIVE MODE", &[]);
}

/// All blocks, of whatever keyspace: its sequences may be another one's as well.
pub fn all() -> Vec<GivenBlock> {
    sql::read_latest(
        "SELECT shard_key, first, last FROM shardmaster.number_block ORDER BY first, shard_key COLLATE \"C\"",
        &[],
        |row| GivenBlock { shard_key: row.value(1), range: [row.value(2), row.value(3)] },
    )
}

/// The same for whoever calls; none where the catalog is that of an earlier version.
pub fn known() -> Vec<GivenBlock> {
    Caller::as_owner(|_| {
        let is_there = sql::read_one(
            "SELECT true WHERE pg_catalog.to_regclass('shardmaster.number_block') IS NOT NULL",
            &[],
            |_| (),
        );
        is_there.map_or_else(Vec::new, |()| all())
    })
}

pub fn insert(keyspace: &str, given: &GivenBlock) {
    sql::write(
        "INSERT INTO shardmaster.number_block (keyspace, shard_key, first, last) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
        &[keyspace.into(), given.shard_key.as_str().into(), given.range[0].into(), given.range[1].into()],
    );
}
