"""The published test vectors, with the package as it is installed: vectors.py DIRECTORY, where they are."""

import json
import pathlib
import sys
import uuid

from shardmaster import is_moving, shard_for, sqlstate_of

PARSE = {"bigint": int, "text": str, "uuid": uuid.UUID}


def lines_of(file):
    text = (pathlib.Path(sys.argv[1]) / file).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def check_hash():
    vectors = lines_of("vectors.jsonl")
    assert len(vectors) >= 1000
    for kind, key, count, shard in vectors:
        found = shard_for(PARSE[kind](key), count)
        assert found == shard, f"{kind} {key!r} of {count}: {found}, not {shard}"
    return len(vectors)


def check_states():
    states = lines_of("moving.jsonl")
    assert {moving for _, moving in states} == {True, False}
    for state, moving in states:
        assert is_moving(state) is moving, state
    assert not is_moving(None)
    return len(states)


class DriverError(Exception):
    sqlstate = "SM001"


def check_wrapped():
    """Errors that another library has made of the driver's."""
    try:
        try:
            raise DriverError
        except DriverError as error:
            raise RuntimeError("as Django does") from error
    except RuntimeError as error:
        assert sqlstate_of(error) == "SM001"
    other = ValueError("as SQLAlchemy does")
    other.orig = DriverError()
    assert sqlstate_of(other) == "SM001"
    round_about = ValueError()
    round_about.__cause__ = round_about
    assert sqlstate_of(round_about) is None
    assert sqlstate_of(None) is None


if __name__ == "__main__":
    check_wrapped()
    print(f"{check_hash()} vectors, {check_states()} SQLSTATEs")
