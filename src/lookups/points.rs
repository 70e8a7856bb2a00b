//! Injection points, in the order in which a worker reaches them.

use crate::server::injection::Point;

const fn point(name: &'static str, description: &'static str) -> Point {
    Point { name, phase: "lookup", description }
}

pub static INSTALLED: Point =
    point("lookup_installed", "a shard captures changes, and the master does not know it");
pub static LOOKED: Point =
    point("lookup_looked", "shards have been asked for pairs, and nothing is recorded");
pub static ANNOUNCED: Point =
    point("lookup_announced", "the shard knows of the step that the master is about to commit");
pub static COMMITTED: Point =
    point("lookup_committed", "the master has the pairs, and the shard still has them in its queue");
pub static CONSUMED: Point = point("lookup_consumed", "the shard has deleted them from its queue");
pub static MISSED: Point =
    point("lookup_missed", "the master knows that changes may have been missed, and the shard does not");
pub static FETCHED: Point = point("lookup_fetched", "rows of a fill have been read, and are not written");
