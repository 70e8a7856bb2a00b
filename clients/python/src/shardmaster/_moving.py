"""What a shard, or shard_route(), says of a key that moves."""

from typing import Optional

# It has moved; it is between two shards; it moved since the transaction's snapshot.
_MOVING = frozenset({"SM001", "SM002", "40001"})


def is_moving(sqlstate: Optional[str]) -> bool:
    """Whether this SQLSTATE says that the key moves: the whole transaction begins again, from a
    new route. So does every other transaction that could not be serialized (40001)."""
    return sqlstate in _MOVING


def sqlstate_of(error: Optional[BaseException]) -> Optional[str]:
    """The SQLSTATE of an error of a driver, also where SQLAlchemy or Django has made another one of
    it: theirs names the driver's as `orig`, or as its cause."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        orig = getattr(error, "orig", None)
        error = orig if isinstance(orig, BaseException) else error.__cause__
    return None
