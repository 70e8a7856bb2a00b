//! How `shard_adopt()` was called, and who has answered.

use std::collections::BTreeMap;

/// How it was called.
#[derive(Clone, Copy)]
pub struct AdoptCall<'a> {
    pub shard_key: Option<&'a str>,
    /// It only says what it would do.
    pub dry_run: bool,
    /// Splits of whose keys the operator says that their routes stay.
    pub keep_routes: &'a [i64],
}

/// The shards that have answered, each with the last version of each keyspace that it has a part in.
pub type AskedShards = BTreeMap<String, BTreeMap<String, i64>>;
