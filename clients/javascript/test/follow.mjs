// Counts on in the table `counter` of a tenant, wherever it is, until it has counted 50 times on the
// shard to which it moves: follow.mjs MASTER TENANT SHARD OTHER. Prints the count. Then waits to be
// told that another tenant is on that shard, too.

import assert from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { Router, configOf, connect } from "shardmaster";

const [master, tenant, target, other] = process.argv.slice(2);
const own = configOf(master);
const router = new Router(own);
const sessions = new Map();

async function count(route) {
  if (!sessions.has(route.shard_key)) {
    // The shard's address for clients names neither a user nor files.
    const config = configOf(route.conninfo, { user: own.user, ssl: { ca: own.ssl?.ca } });
    sessions.set(route.shard_key, await connect(config));
  }
  const text = "UPDATE counter SET value = value + 1 WHERE tenant = $1 RETURNING value";
  const { rows } = await sessions.get(route.shard_key).query(text, [tenant]);
  return Number(rows[0].value);
}

let [counted, there] = [0, 0];
while (there < 50) {
  counted += 1;
  // Not one is lost, and none is done twice.
  assert.strictEqual(await router.call(tenant, 30_000, count), counted);
  there += (await router.route(tenant)).shard_key === target ? 1 : 0;
}
assert.notStrictEqual((await router.route(other)).shard_key, target);
console.log(counted);
// Well below the time after which a router asks in any case.
const deadline = performance.now() + 10_000;
while ((await router.route(other)).shard_key !== target) {
  assert(performance.now() < deadline, "nobody has told");
  await sleep(10);
}
console.log("told");
for (const session of sessions.values()) await session.end();
await router.end();
