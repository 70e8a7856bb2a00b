#!/usr/bin/env python3
"""Writes vectors.jsonl: [type, key, shard_count, shard], one a line.

The keys come from a fixed seed, the shards from the package xxhash of PyPI, so that the
vectors are not of the code that is tested against them.
"""

import json
import random
import uuid

import xxhash

COUNTS = [1, 2, 3, 7, 16, 64, 1000, 1024, 4096, 65536, 1000003, 2147483647]


def shard(key_bytes, count):
    return xxhash.xxh64_intdigest(key_bytes, seed=0) % count


def bigints(rng):
    yield from [0, 1, -1, 42, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63), -(2**63) + 1]
    for bits in range(1, 64):
        yield 2**bits - 1
        yield -(2**bits)
    for _ in range(300):
        yield rng.randrange(-(2**63), 2**63)


def texts(rng):
    yield from ["", " ", "a", "A", "a ", "007", "7", "tenant-1", "NULL", "\t\n\r", "'\"\\", "%s{}$1"]
    yield from ["é", "e\u0301", "ß", "你好", "🐘", "🐘" * 40, "\u0000"[1:] + "\u0001", "\U0010ffff", "\ud7ff"]
    # Around the stripes of 4, 8 and 32 bytes that the hash reads.
    for length in [*range(1, 72), 95, 96, 97, 127, 128, 129, 1000, 4096]:
        yield "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789-_") for _ in range(length))
        yield "".join(chr(rng.choice([0xE9, 0x4F60, 0x1F418, 0x61])) for _ in range(length))
    for _ in range(150):
        yield f"tenant {rng.randrange(10**9)}"


def uuids(rng):
    yield uuid.UUID(int=0)
    yield uuid.UUID(int=2**128 - 1)
    for bit in range(0, 128, 8):
        yield uuid.UUID(int=1 << bit)
    for _ in range(300):
        yield uuid.UUID(int=rng.getrandbits(128))


def vectors():
    rng = random.Random(20240101)
    for key in bigints(rng):
        yield "bigint", str(key), key.to_bytes(8, "little", signed=True)
    for key in texts(rng):
        yield "text", key, key.encode()
    for key in uuids(rng):
        yield "uuid", str(key), key.bytes


def main():
    with open("vectors.jsonl", "w", encoding="utf-8") as out:
        for n, (kind, key, key_bytes) in enumerate(vectors()):
            for count in (COUNTS[n % len(COUNTS)], 2147483647):
                out.write(json.dumps([kind, key, count, shard(key_bytes, count)]) + "\n")


if __name__ == "__main__":
    main()
