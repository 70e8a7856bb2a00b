"""The published test vectors."""

import json
import pathlib
import uuid

from shardmaster import shard_for

PARSE = {"bigint": int, "text": str, "uuid": uuid.UUID}


def main():
    path = pathlib.Path(__file__).parent.parent / "vectors.jsonl"
    vectors = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(vectors) >= 1000
    for kind, key, count, shard in vectors:
        found = shard_for(PARSE[kind](key), count)
        assert found == shard, f"{kind} {key!r} of {count}: {found}, not {shard}"
    print(f"{len(vectors)} vectors")


if __name__ == "__main__":
    main()
