"""The package's types, as a program sees them. It is checked by mypy, not run."""

import uuid

import psycopg

from shardmaster import Route, Router, is_moving, shard_for, sqlstate_of

router = Router("host=master dbname=app", "default")


def count(route: Route) -> int:
    with psycopg.connect(route.conninfo or "") as session:
        row = session.execute("SELECT 1").fetchone()
    return row[0] if row else 0


counted: int = router.call("acme", 10, count)
numbers: "list[int]" = [shard_for(7, 16), shard_for("acme", 16), shard_for(uuid.UUID(int=0), 16)]
moving: bool = is_moving(sqlstate_of(ValueError())) and is_moving("SM001")
shard_for(1.5, 16)  # type: ignore[arg-type]
router.call("acme", count)  # type: ignore[call-arg, arg-type]
