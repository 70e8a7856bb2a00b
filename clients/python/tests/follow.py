"""Follows a tenant with psycopg: follow.py MASTER TENANT SHARD OTHER."""

import sys

import psycopg
from following import follow

from shardmaster import Router

master, tenant, target, other = sys.argv[1:]
router = Router(master)
sessions = {}


def count_at(route):
    if route.shard_key not in sessions:
        # The shard's address for clients names no user.
        sessions[route.shard_key] = psycopg.connect(route.conninfo, user="app")
    session = sessions[route.shard_key]
    query = "UPDATE counter SET value = value + 1 WHERE tenant = %s RETURNING value"
    with session.transaction():
        return session.execute(query, (tenant,)).fetchone()[0]


follow(router, lambda tenant: router.call(tenant, 30, count_at), tenant, target, other)
router.close()
for session in sessions.values():
    session.close()
