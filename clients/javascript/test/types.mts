// The package's types, as a program in TypeScript sees them. It is compiled, not run.

import { Router, configOf, connect, isMoving, shardFor, type Config, type Route } from "shardmaster";

const config: Config = configOf("host=master dbname=app", { user: "app" });
const router = new Router(config, "default");
const counted: number = await router.call("acme", 10_000, async (route: Route) => {
  const session = await connect(configOf(route.conninfo ?? "", { user: "app" }));
  const { rows } = await session.query<{ n: number }>("SELECT 1 AS n");
  return rows[0]?.n ?? 0;
});
const numbers: number[] = [shardFor(7n, 16), shardFor("acme", 16), shardFor({ uuid: "" }, 16), counted];
const moving: boolean = isMoving("SM001") && isMoving(null);
// @ts-expect-error: a key is no date.
shardFor(new Date(), 16);
// @ts-expect-error: a transaction needs the time that it may take.
await router.call("acme", () => 1);
console.log(numbers, moving);
await router.end();
