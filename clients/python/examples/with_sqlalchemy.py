"""An application with SQLAlchemy: an engine, and so a pool, for each shard; a transaction is a function
that is called again where its key is then.

    with_sqlalchemy.py MASTER TENANT SHARD OTHER    counts while TENANT moves to SHARD
"""

import sys
from typing import Callable, Dict, TypeVar

import psycopg
from sqlalchemy import Engine, create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from shardmaster import Route, Router

T = TypeVar("T")


class Base(DeclarativeBase):
    pass


class Counter(Base):
    __tablename__ = "counter"

    tenant: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]


class Shards:
    """Where the keys of a keyspace are, and engines to get there as this user."""

    def __init__(self, master: str, user: str) -> None:
        self.router = Router(master)
        self._user = user
        self._engines: Dict[str, Engine] = {}

    def _engine(self, route: Route) -> Engine:
        if route.shard_key not in self._engines:
            conninfo = route.conninfo or ""
            self._engines[route.shard_key] = create_engine(
                "postgresql+psycopg://",
                creator=lambda: psycopg.connect(conninfo, user=self._user),
                # The models name no schema: theirs is the shard's.
                execution_options={"schema_translate_map": {None: route.namespace}},
            )
        return self._engines[route.shard_key]

    def transaction(self, key: str, limit: float, work: Callable[[Session], T]) -> T:
        """Does the work in one transaction where the key is; all of it again if the key moves."""

        def at(route: Route) -> T:
            with Session(self._engine(route)) as session, session.begin():
                return work(session)

        return self.router.call(key, limit, at)


def count(session: Session, tenant: str) -> int:
    more = update(Counter).where(Counter.tenant == tenant).values(value=Counter.value + 1)
    return session.execute(more.returning(Counter.value)).scalar_one()


def main() -> None:
    from following import follow

    master, tenant, target, other = sys.argv[1:]
    shards = Shards(master, "app")

    def count_one(tenant: str) -> int:
        return shards.transaction(tenant, 30, lambda session: count(session, tenant))

    follow(shards.router, count_one, tenant, target, other)


if __name__ == "__main__":
    main()
