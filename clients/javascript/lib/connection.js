// Sessions of node-postgres by connection strings of libpq, which is what a master's routes have.

import { readFileSync } from "node:fs";
import pg from "pg";

const MODES = new Set(["allow", "prefer", "require", "verify-ca", "verify-full"]);

/** The pairs of a libpq connection string: key = value, or key = 'va\'lue'. */
function pairsOf(conninfo) {
  const pairs = {};
  for (const [, key, quoted, plain] of conninfo.matchAll(/(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)*))/g)) {
    pairs[key] = (quoted ?? plain).replace(/\\(.)/g, "$1");
  }
  return pairs;
}

// The values of settings that ask for nothing which node-postgres could not do.
const WHAT_CAN_BE_DONE = { channel_binding: ["disable", "prefer"], gssencmode: ["disable", "prefer"], require_auth: [] };
const VERSIONS = new Set(["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]);

function versionOf(text) {
  if (!VERSIONS.has(text)) throw new Error(`ssl_min_protocol_version "${text}" is not known`);
  return text;
}

/** A session must not be less than what was asked for. */
function refuseWhatCannotBeDone(pairs) {
  for (const [key, values] of Object.entries(WHAT_CAN_BE_DONE)) {
    if (pairs[key] && !values.includes(pairs[key])) throw new Error(`${key}=${pairs[key]} is not known`);
  }
  for (const key of ["host", "hostaddr"]) {
    if (pairs[key]?.includes(",")) throw new Error(`only one ${key} can be connected to`);
  }
}

/**
 * A configuration of the connection string of a route, with more of one's own: the user, and `ca` in
 * `ssl` where no sslrootcert is named. TLS as sslmode says, with verify-full and verify-ca only by a
 * certificate of that authority. It is for connect(): pg.Client itself knows TLS or none, and where
 * the string leaves that open (`prefer`, which is what libpq does where none is said, and `allow`)
 * it insists on TLS. Several hosts, and what it cannot do of authentication and encryption, are errors.
 */
export function configOf(conninfo, own = {}) {
  const pairs = pairsOf(conninfo);
  refuseWhatCannotBeDone(pairs);
  const { host, hostaddr, port, dbname, user, sslmode = "prefer", sslrootcert } = pairs;
  const config = { host: hostaddr ?? host, port: port && Number(port), database: dbname, user, ...own };
  const isSocket = (hostaddr ?? host ?? "/").startsWith("/");
  if (sslmode === "disable" || isSocket) return { ...config, ssl: false };
  if (!MODES.has(sslmode)) throw new Error(`sslmode "${sslmode}" is not known`);
  const ssl = { ...own.ssl, servername: host, rejectUnauthorized: sslmode.startsWith("verify-") };
  if (sslrootcert) ssl.ca = readFileSync(sslrootcert);
  if (pairs.ssl_min_protocol_version) ssl.minVersion = versionOf(pairs.ssl_min_protocol_version);
  if (sslmode === "verify-ca") ssl.checkServerIdentity = () => undefined;
  return { ...config, ssl, mayBePlain: ["prefer", "allow"].includes(sslmode) };
}

/**
 * A session of a configuration of configOf(). Where TLS is left open it is tried first, and done
 * without where the server has none, or lets nobody in by it.
 */
export async function connect(config) {
  try {
    return await opened(config);
  } catch (error) {
    const isRefused = error.code === "28000" || error.message?.includes("does not support SSL");
    if (!config.mayBePlain || !isRefused) throw error;
    return await opened({ ...config, ssl: false });
  }
}

async function opened(config) {
  const session = new pg.Client(config);
  // Without a listener an error of an idle session ends the program.
  session.on("error", () => {});
  try {
    await session.connect();
    return session;
  } catch (error) {
    session.end().catch(() => {});
    throw error;
  }
}
