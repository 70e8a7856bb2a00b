//! The arguments of `shard_adopt()`, and the shards that have answered.

use std::collections::BTreeMap;

/// The arguments of the call.
#[derive(Clone, Copy)]
pub struct AdoptCall<'a> {
    pub shard_key: Option<&'a str>,
    /// It only reports what it would do.
    pub dry_run: bool,
    /// Splits whose keys keep their routes, as the operator has decided.
    pub keep_routes: &'a [i64],
}

/// The shards that have answered, each with the last version of each keyspace that it takes part in.
pub type AskedShards = BTreeMap<String, BTreeMap<String, i64>>;
