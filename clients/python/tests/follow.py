"""Counts on in the table `counter` of a tenant, wherever it is, until it has counted 50 times
on the shard to which it moves: follow.py MASTER TENANT SHARD OTHER. Prints the count.
Then waits to be told that another tenant is on that shard, too."""

import sys
import time

import psycopg

from shardmaster import Router

master, tenant, target, other = sys.argv[1:]
router = Router(master)
sessions = {}


def count(route):
    if route.shard_key not in sessions:
        # The shard's address for clients names no user.
        sessions[route.shard_key] = psycopg.connect(route.conninfo, user="app")
    session = sessions[route.shard_key]
    query = "UPDATE counter SET value = value + 1 WHERE tenant = %s RETURNING value"
    with session.transaction():
        return session.execute(query, (tenant,)).fetchone()[0]


counted = there = 0
while there < 50:
    counted += 1
    # Not one is lost, and none is done twice.
    found = router.call(tenant, 30, count)
    assert found == counted, f"{found} instead of {counted}"
    there += router.route(tenant).shard_key == target
assert router.route(other).shard_key != target
print(counted, flush=True)
# Well below the time after which a router asks in any case.
deadline = time.monotonic() + 10
while router.route(other).shard_key != target:
    assert time.monotonic() < deadline, "nobody has told"
    time.sleep(0.01)
print("told")
router.close()
for session in sessions.values():
    session.close()
