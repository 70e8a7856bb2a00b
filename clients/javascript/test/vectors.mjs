// The published test vectors, with the package as it is installed: vectors.mjs DIRECTORY, where they are.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { isMoving, shardFor } from "shardmaster";

const linesOf = (file) => readFileSync(`${process.argv[2]}/${file}`, "utf8").trimEnd().split("\n").map(JSON.parse);

const parse = { bigint: BigInt, text: String, uuid: (uuid) => ({ uuid }) };
const vectors = linesOf("vectors.jsonl");
assert(vectors.length >= 1000);
for (const [kind, key, count, shard] of vectors) {
  assert.equal(shardFor(parse[kind](key), count), shard, `${kind} ${key} of ${count}`);
}

const states = linesOf("moving.jsonl");
assert(states.some(([, moving]) => moving) && states.some(([, moving]) => !moving));
for (const [state, moving] of states) assert.equal(isMoving(state), moving, state);
assert.equal(isMoving(undefined), false);
console.log(`${vectors.length} vectors, ${states.length} SQLSTATEs`);
