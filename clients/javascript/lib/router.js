// The client's loop: ask the master once, keep the answer, ask again when it says that routing has
// changed or a shard says that the key has moved.

import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { connect } from "./connection.js";
import { isMoving } from "./moving.js";

// Milliseconds. A kept route is used for so long; without a master, an old one.
const LONGEST_KEPT = 30_000;
const WITHOUT_MASTER = 1_000;
const MOST_ROUTES = 100_000;

/** Whether the server has answered, in whatever way, and is not about to go. */
function isAnswer(error) {
  return error instanceof pg.DatabaseError && !error.code?.startsWith("57P");
}

/** Whether a payload says that routes are old; others may say anything on the channel. */
function isChange(payload) {
  try {
    return ["routing", "topology"].includes(JSON.parse(payload)?.event);
  } catch {
    return false;
  }
}

/** Routes of one keyspace. `master` is a configuration of configOf(), or one for pg.Client. */
export class Router {
  #master;
  #keyspace;
  #routes = new Map();
  #session = null;
  #opening = null;
  // How often it was said that routes are old: an answer that was asked for before is.
  #told = 0;

  constructor(master, keyspace = "default") {
    this.#master = { connectionTimeoutMillis: 10_000, query_timeout: 30_000, keepAlive: true, ...master };
    this.#keyspace = keyspace;
  }

  async #open() {
    const session = await connect(this.#master);
    session.on("notification", ({ payload }) => isChange(payload) && this.#allAreOld());
    session.on("error", () => this.#forget(session));
    session.on("end", () => this.#forget(session));
    try {
      await session.query("LISTEN shardmaster");
    } catch (error) {
      session.end().catch(() => {});
      throw error;
    }
    this.#allAreOld(); // what was said before, nobody has heard
    return (this.#session = session);
  }

  #forget(session) {
    if (this.#session === session) this.#session = null;
  }

  #allAreOld() {
    this.#told += 1;
    for (const kept of this.#routes.values()) kept.until = 0;
  }

  /** One session for all who ask at the same time. */
  async #connected() {
    if (this.#session) return this.#session;
    this.#opening ??= this.#open().finally(() => (this.#opening = null));
    return this.#opening;
  }

  async #ask(key) {
    const session = await this.#connected();
    const told = this.#told;
    const text = "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route($1, 'write', $2)";
    try {
      const { rows } = await session.query(text, [key, this.#keyspace]);
      return this.#keep(key, rows[0], told === this.#told ? LONGEST_KEPT : 0);
    } catch (error) {
      if (!isAnswer(error)) {
        this.#forget(session);
        session.end().catch(() => {});
      }
      throw error;
    }
  }

  #keep(key, route, time) {
    if (this.#routes.size >= MOST_ROUTES) this.#routes.clear();
    this.#routes.set(key, { route, until: performance.now() + time });
    return route;
  }

  /**
   * Where the key is written, as kept or as the master says: {shard_key, conninfo, namespace,
   * routing_version}. No conninfo: the master's own database.
   */
  async route(key) {
    const kept = this.#routes.get(key);
    if (kept && performance.now() < kept.until) return kept.route;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#ask(key);
      } catch (error) {
        if (isAnswer(error)) throw error;
        if (attempt === 1) continue;
        // Without the master: the old shard refuses a key that has left it.
        if (kept) return this.#keep(key, kept.route, WITHOUT_MASTER);
        throw error;
      }
    }
  }

  /**
   * Does one transaction, a function of a route, where the key is: all of it again, at the shard that the
   * master names then, as long as the key moves and `limit` milliseconds are not over. Other errors
   * are the caller's.
   */
  async call(key, limit, transaction) {
    const deadline = performance.now() + limit;
    for (let pause = 5; ; pause = Math.min(2 * pause, 200)) {
      try {
        return await transaction(await this.route(key));
      } catch (error) {
        if (!isMoving(error.code) || performance.now() >= deadline) throw error;
      }
      this.#routes.delete(key);
      await sleep(pause * (0.5 + Math.random()));
    }
  }

  async end() {
    await this.#session?.end();
  }
}
