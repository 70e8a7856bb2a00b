//! What a shard, or `shard_route()`, says of a key that moves.

/// Whether this SQLSTATE says that the key moves: it has moved (SM001), is between two shards
/// (SM002), or moved since the transaction's snapshot (40001, as other conflicts do). The
/// whole transaction begins again, from a new route.
///
/// ```
/// assert!(shardmaster_client::is_moving("SM001"));
/// assert!(!shardmaster_client::is_moving("23505"));
/// ```
pub fn is_moving(sqlstate: &str) -> bool {
    matches!(sqlstate, "SM001" | "SM002" | "40001")
}
