"""The client's side of shardmaster, which shards PostgreSQL: routes of keys, and the hash of keys."""

from ._hash import shard_for
from ._moving import is_moving, sqlstate_of
from ._router import Route, Router

__all__ = ["Route", "Router", "is_moving", "shard_for", "sqlstate_of"]
