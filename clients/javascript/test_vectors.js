// The published test vectors.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { shardFor } from "./shardmaster.js";

const parse = { bigint: BigInt, text: String, uuid: (uuid) => ({ uuid }) };
const lines = readFileSync(new URL("../vectors.jsonl", import.meta.url), "utf8").trimEnd().split("\n");
assert(lines.length >= 1000);
for (const line of lines) {
  const [kind, key, count, shard] = JSON.parse(line);
  assert.equal(shardFor(parse[kind](key), count), shard, line);
}
console.log(`${lines.length} vectors`);
