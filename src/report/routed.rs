//! How many entries of routing lead to each shard: keys of a directory, buckets, ranges.

use crate::server::sql;
use std::collections::HashMap;

/// The greatest number of pages of the table that are read; of a larger table, this many random pages stand for all.
const MOST_PAGES: f64 = 40_000.0;

pub struct Routed {
    by_shard: HashMap<String, i64>,
    by_keyspace: HashMap<String, i64>,
    /// Only a part was read.
    pub is_estimate: bool,
}

impl Routed {
    pub fn count() -> Routed {
        let pages: f64 = sql::read_one(
            "SELECT (pg_catalog.pg_relation_size('shardmaster.routing_entry') / pg_catalog.current_setting('block_size')::bigint)::float8",
            &[],
            |row| row.value(1),
        )
        .unwrap_or(0.0);
        let part = (MOST_PAGES / pages.max(1.0)).min(1.0);
        let mut routed =
            Routed { by_shard: HashMap::new(), by_keyspace: HashMap::new(), is_estimate: part < 1.0 };
        let query = include_str!("../../sql/report/routed.sql");
        let counts = sql::read(query, &[(part * 100.0).into()], |row| {
            (row.value::<bool>(1), row.value::<String>(2), row.value::<i64>(3))
        });
        for (is_shard, name, count) in counts {
            let whole = (count as f64 / part).round() as i64;
            let of = if is_shard { &mut routed.by_shard } else { &mut routed.by_keyspace };
            of.insert(name, whole);
        }
        routed
    }

    pub fn on(&self, shard: &str) -> i64 {
        self.by_shard.get(shard).copied().unwrap_or(0)
    }

    pub fn of(&self, keyspace: &str) -> i64 {
        self.by_keyspace.get(keyspace).copied().unwrap_or(0)
    }

    pub fn all(&self) -> i64 {
        self.by_keyspace.values().sum()
    }

    /// Marks a number that was estimated.
    pub fn about(&self, number: String) -> String {
        if self.is_estimate { format!("≈ {number}") } else { number }
    }
}
