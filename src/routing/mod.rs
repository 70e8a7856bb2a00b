//! From a key to its shards.
