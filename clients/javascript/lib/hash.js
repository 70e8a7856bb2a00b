// The shard of a key by its hash, as shard_for() of shardmaster computes it.

import xxhash from "xxhash-wasm";

const { h64Raw } = await xxhash();

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The bytes that are hashed: of a bigint or safe integer, a string, a {uuid: string}. */
function bytesOf(key) {
  if (typeof key === "string") return new TextEncoder().encode(key);
  if (typeof key === "object" && UUID.test(key.uuid)) {
    return Uint8Array.from(key.uuid.replaceAll("-", "").match(/../g), (hex) => parseInt(hex, 16));
  }
  if (typeof key === "number" && !Number.isSafeInteger(key)) throw new RangeError(`${key} is no safe integer`);
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(key), true);
  return bytes;
}

/** The number of the key's shard, or bucket, from 0. */
export function shardFor(key, shardCount) {
  if (!(shardCount > 0)) throw new RangeError("shardCount must be positive");
  return Number(h64Raw(bytesOf(key), 0n) % BigInt(shardCount));
}
