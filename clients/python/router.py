"""The client's loop: ask the master once, keep the answer, ask again when it says that
routing has changed or a shard says that the key has moved. Needs psycopg2."""

import json
import random
import time
from typing import NamedTuple, Optional

import psycopg2

# Seconds. A kept route is used for so long; without a master, an old one.
LONGEST_KEPT = 30
WITHOUT_MASTER = 1
MOST_ROUTES = 100_000
# What a shard says of a key that has moved, is on its way, or moved since the snapshot.
MOVING = ("SM001", "SM002", "40001")


def _event(payload):
    """What an event is about; None for what others say on the channel."""
    try:
        event = json.loads(payload)
    except ValueError:
        return None
    return event.get("event") if isinstance(event, dict) else None


class Route(NamedTuple):
    shard_key: str
    conninfo: Optional[str]  # None: the master's own database
    namespace: str  # the schema to work in
    version: int


class Router:
    """Routes of one keyspace. Not for several threads at once."""

    def __init__(self, master, keyspace="default"):
        self.master = master
        self.keyspace = keyspace
        self._routes = {}
        self._session = self._open()

    def _open(self):
        session = psycopg2.connect(self.master, connect_timeout=10, tcp_user_timeout=30_000)
        session.autocommit = True
        session.cursor().execute("SET statement_timeout = '30s'; LISTEN shardmaster")
        self._all_are_old()  # what was said before, nobody has heard
        return session

    def _all_are_old(self):
        self._routes = {key: (route, 0) for key, (route, _) in self._routes.items()}

    def _listen(self):
        """Reads what the master has said since, without waiting."""
        self._session.poll()
        events = [_event(notification.payload) for notification in self._session.notifies]
        self._session.notifies.clear()
        if "routing" in events or "topology" in events:
            self._all_are_old()

    def _ask(self, key):
        query = "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route(%s, 'write', %s)"
        cursor = self._session.cursor()
        cursor.execute(query, (key, self.keyspace))
        return Route(*cursor.fetchone())

    def route(self, key):
        """Where the key is written: as kept, or as the master says."""
        for attempt in (1, 2):
            try:
                self._listen()
                route, until = self._routes.get(key, (None, 0))
                if time.monotonic() < until:
                    return route
                return self._keep(key, self._ask(key), LONGEST_KEPT)
            except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
                if error.pgcode in MOVING:
                    raise
                try:
                    self._session.close()
                    self._session = self._open()
                except psycopg2.OperationalError:
                    # Without the master: the old shard refuses a key that has left it.
                    if key in self._routes:
                        return self._keep(key, self._routes[key][0], WITHOUT_MASTER)
                    raise error from None
        return self._keep(key, self._ask(key), LONGEST_KEPT)

    def _keep(self, key, route, seconds):
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        self._routes[key] = (route, time.monotonic() + seconds)
        return route

    def call(self, key, limit, transaction):
        """Does one transaction, a function of a Route, where the key is: all of it again, at
        the shard that the master names then, as long as the key moves and `limit` seconds
        are not over. Other errors are the caller's."""
        deadline, pause = time.monotonic() + limit, 0.005
        while True:
            try:
                return transaction(self.route(key))
            except psycopg2.Error as error:
                if error.pgcode not in MOVING or time.monotonic() >= deadline:
                    raise
            self._routes.pop(key, None)
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 0.2)
