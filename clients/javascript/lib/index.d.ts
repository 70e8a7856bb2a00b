import type { Client, ClientConfig } from "pg";

/** A key as one of the types that have a hash: bigint (or a safe integer), text, uuid. */
export type Key = bigint | number | string | { uuid: string };

/** The number of the key's shard, or bucket, from 0, as shard_for() of the extension computes it. */
export function shardFor(key: Key, shardCount: number): number;

/**
 * Whether this SQLSTATE says that the key moves (SM001, SM002, 40001): the whole transaction begins again,
 * from a new route.
 */
export function isMoving(sqlstate: string | null | undefined): boolean;

/** A configuration of node-postgres, and whether TLS may be done without. */
export interface Config extends ClientConfig {
  mayBePlain?: boolean;
}

/**
 * A configuration of a connection string of libpq, with more of one's own: the user, and `ca` in `ssl` where
 * no sslrootcert is named. It is for connect(): pg.Client itself knows TLS or none.
 */
export function configOf(conninfo: string, own?: ClientConfig): Config;

/** A session. Where TLS is left open it is tried first, and done without where the server has none. */
export function connect(config: Config): Promise<Client>;

/** Where a key is to be found. */
export interface Route {
  shard_key: string;
  /** null: the master's own database. */
  conninfo: string | null;
  /** The schema to work in. */
  namespace: string;
  /** A bigint, as node-postgres returns it. */
  routing_version: string;
}

/** Routes of one keyspace, kept until the master says that routing has changed. */
export class Router {
  /** `master` is a configuration of configOf(), or one for pg.Client. */
  constructor(master: Config, keyspace?: string);
  /** Where the key is written, as kept or as the master says. SM002: between two shards; 42704: not assigned. */
  route(key: string): Promise<Route>;
  /**
   * Does one transaction where the key is: all of it again, at the shard that the master names then, as long
   * as the key moves and `limit` milliseconds are not over. Other errors are the caller's.
   */
  call<T>(key: string, limit: number, transaction: (route: Route) => T | Promise<T>): Promise<T>;
  /** Ends the session with the master. */
  end(): Promise<void>;
}
