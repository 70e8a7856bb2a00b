"""The client's loop: ask the master once, keep the answer, ask again when it says that
routing has changed or a shard says that the key has moved."""

import json
import random
import time
from typing import Callable, Dict, NamedTuple, Optional, Tuple, TypeVar

import psycopg

from ._moving import is_moving, sqlstate_of

T = TypeVar("T")

# Seconds. A kept route is used for so long; without a master, an old one.
_LONGEST_KEPT = 30
_WITHOUT_MASTER = 1
_MOST_ROUTES = 100_000


def _is_change(payload: str) -> bool:
    """Whether a payload says that routes are old; others may say anything on the channel."""
    try:
        event = json.loads(payload)
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("event") in ("routing", "topology")


def _is_lost(error: psycopg.Error) -> bool:
    """Not an answer of the master, but the end of its session, or none to be had."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


class Route(NamedTuple):
    """Where a key is to be found."""

    shard_key: str
    conninfo: Optional[str]  # None: the master's own database
    namespace: str  # the schema to work in
    version: int


class Router:
    """Routes of one keyspace. Not for several threads at once."""

    def __init__(self, master: str, keyspace: str = "default") -> None:
        self._master = master
        self._keyspace = keyspace
        self._routes: Dict[str, Tuple[Route, float]] = {}
        # Whether it was said that routes are old, since that was last looked at.
        self._is_told = False
        self._session: Optional["psycopg.Connection[Tuple[str, Optional[str], str, int]]"] = None
        # An error of the first session is the caller's.
        self._open()

    def _open(self) -> "psycopg.Connection[Tuple[str, Optional[str], str, int]]":
        session: "psycopg.Connection[Tuple[str, Optional[str], str, int]]" = psycopg.connect(
            self._master, autocommit=True, connect_timeout=10, tcp_user_timeout=30_000
        )
        try:
            session.add_notify_handler(lambda said: self._hear(said.payload))
            session.execute("SET statement_timeout = '30s'")
            session.execute("LISTEN shardmaster")
        except psycopg.Error:
            session.close()
            raise
        self._all_are_old()  # what was said before, nobody has heard
        self._session = session
        return session

    def _hear(self, payload: str) -> None:
        self._is_told = self._is_told or _is_change(payload)

    def _all_are_old(self) -> None:
        self._is_told = False
        self._routes = {key: (route, 0) for key, (route, _) in self._routes.items()}

    def _listen(self) -> None:
        """Reads what the master has said since, without waiting."""
        if self._session is None:
            return
        said = self._session.pgconn
        said.consume_input()
        while notification := said.notifies():
            self._hear(notification.extra.decode("utf-8", "replace"))
        if self._is_told:
            self._all_are_old()

    def _lose(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            self._all_are_old()

    def _ask(self, key: str) -> Route:
        session = self._session or self._open()
        row = session.execute(
            "SELECT shard_key, conninfo, namespace, routing_version"
            " FROM shard_route(%s::text, 'write', %s::text)",
            (key, self._keyspace),
        ).fetchone()
        assert row is not None, "shard_route returns one row"
        return Route(*row)

    def route(self, key: str) -> Route:
        """Where the key is written: as kept, or as the master says. SM002: it is between two
        shards; 42704: nobody has assigned it."""
        lost: Optional[psycopg.Error] = None
        for _ in range(2):
            try:
                self._listen()
                if key in self._routes:
                    route, until = self._routes[key]
                    if time.monotonic() < until:
                        return route
                return self._keep(key, self._ask(key), _LONGEST_KEPT)
            except psycopg.Error as error:
                if not _is_lost(error):
                    raise
                self._lose()
                lost = error
        if key in self._routes:
            # Without the master: the old shard refuses a key that has left it.
            return self._keep(key, self._routes[key][0], _WITHOUT_MASTER)
        assert lost is not None
        raise lost

    def _keep(self, key: str, route: Route, seconds: float) -> Route:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        self._routes[key] = (route, time.monotonic() + seconds)
        return route

    def call(self, key: str, limit: float, transaction: Callable[[Route], T]) -> T:
        """Does one transaction, a function of a Route, where the key is: all of it again, at
        the shard that the master names then, as long as the key moves and `limit` seconds
        are not over. Other errors are the caller's."""
        deadline, pause = time.monotonic() + limit, 0.005
        while True:
            try:
                return transaction(self.route(key))
            except Exception as error:
                if not is_moving(sqlstate_of(error)) or time.monotonic() >= deadline:
                    raise
            self._routes.pop(key, None)
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 0.2)

    def close(self) -> None:
        """Ends the session with the master. The next question opens another one."""
        self._lose()
