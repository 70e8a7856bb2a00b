"""An application with Django: a database of its settings for each shard, made when it is first needed, and
a database router that sends the models of shards to the one on which the transaction is.

    with_django.py MASTER TENANT SHARD OTHER    counts while TENANT moves to SHARD
"""

import sys
from contextvars import ContextVar
from typing import Any, Callable, Dict, Optional, Type, TypeVar

import django
from django.conf import settings
from django.db import connections, models, transaction
from psycopg.conninfo import conninfo_to_dict

from shardmaster import Route, Router

T = TypeVar("T")

# The database on which the transaction of this task or thread is.
_here: "ContextVar[Optional[str]]" = ContextVar("here", default=None)


class ShardRouter:
    """For DATABASE_ROUTERS: models of the application `sharded` are on shards."""

    def db_for_read(self, model: Type[models.Model], **hints: Any) -> Optional[str]:
        if model._meta.app_label != "sharded":
            return None
        here = _here.get()
        if here is None:
            raise RuntimeError(f"{model.__name__} is on shards: only within on_shard_of()")
        return here

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> Optional[bool]:
        # A new shard's tables are made by the master (docs/guides/copy-a-schema.md).
        return False if app_label == "sharded" else None


def _database(route: Route, user: str) -> str:
    """The name of the shard among Django's databases."""
    name = f"shard:{route.shard_key}"
    if name not in connections.databases:
        options: Dict[str, Any] = conninfo_to_dict(route.conninfo or "")
        schema = '"' + route.namespace.replace('"', '""') + '"'
        escaped = schema.replace("\\", "\\\\").replace(" ", "\\ ")
        options["options"] = f"{options.get('options', '')} -c search_path={escaped}".strip()
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": options.pop("dbname"),
            "USER": user,
            "HOST": options.pop("host", ""),
            "PORT": options.pop("port", ""),
            "CONN_MAX_AGE": None,
            "OPTIONS": options,
        }
        filled = connections.configure_settings({"default": {}, name: database})
        connections.databases[name] = filled[name]
    return name


def on_shard_of(routes: Router, key: str, limit: float, user: str, work: Callable[[], T]) -> T:
    """Does the work in one transaction where the key is; all of it again if the key moves."""

    def at(route: Route) -> T:
        database = _database(route, user)
        before = _here.set(database)
        try:
            with transaction.atomic(using=database):
                return work()
        finally:
            _here.reset(before)

    return routes.call(key, limit, at)


def main() -> None:
    from following import follow

    settings.configure(DATABASES={}, DATABASE_ROUTERS=[ShardRouter()], INSTALLED_APPS=[])
    django.setup()

    class Counter(models.Model):
        tenant = models.TextField(primary_key=True)
        value = models.BigIntegerField()

        class Meta:
            app_label = "sharded"
            db_table = "counter"
            managed = False

    master, tenant, target, other = sys.argv[1:]
    routes = Router(master)

    def count(tenant: str) -> int:
        def work() -> int:
            rows = Counter.objects.filter(tenant=tenant)
            # 0 rows would be a reason to ask for the route again.
            assert rows.update(value=models.F("value") + 1) == 1
            return rows.get().value

        return on_shard_of(routes, tenant, 30, "app", work)

    try:
        Counter.objects.count()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a model of shards was found outside of a transaction")
    follow(routes, count, tenant, target, other)


if __name__ == "__main__":
    main()
