// What a shard, or shard_route(), says of a key that moves.

// It has moved; it is between two shards; it moved since the transaction's snapshot.
const MOVING = new Set(["SM001", "SM002", "40001"]);

/**
 * Whether this SQLSTATE says that the key moves: the whole transaction begins again, from a new route.
 * So does every other transaction that could not be serialized (40001).
 */
export function isMoving(sqlstate) {
  return MOVING.has(sqlstate);
}
