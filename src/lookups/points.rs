//! Injection points, in the order in which a worker reaches them.

use crate::server::injection::points;

points! {
    "lookup":
    INSTALLED = "lookup_installed", "a shard captures changes, and the master does not know it";
    LOOKED = "lookup_looked", "shards have been asked for pairs, and nothing is recorded";
    ANNOUNCED = "lookup_announced", "the shard knows of the step that the master is about to commit";
    COMMITTED = "lookup_committed", "the master has the pairs, and the shard still has them in its queue";
    CONSUMED = "lookup_consumed", "the shard has deleted them from its queue";
    MISSED = "lookup_missed", "the master knows that changes may have been missed, and the shard does not";
    FETCHED = "lookup_fetched", "rows of a fill have been read, and are not written";
}
