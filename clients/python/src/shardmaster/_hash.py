"""The shard of a key by its hash, as shard_for() of shardmaster computes it."""

import uuid
from typing import Union

import xxhash


def shard_for(key: Union[int, str, uuid.UUID], shard_count: int) -> int:
    """The number of the key's shard, or bucket, from 0."""
    if shard_count <= 0:
        raise ValueError("shard_count must be positive")
    if isinstance(key, uuid.UUID):
        key_bytes = key.bytes
    elif isinstance(key, str):
        key_bytes = key.encode("utf-8")
    else:
        key_bytes = key.to_bytes(8, "little", signed=True)
    return xxhash.xxh64_intdigest(key_bytes, seed=0) % shard_count
