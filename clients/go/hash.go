package shardmaster

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Key is what a hash is of: a bigint, a text in UTF-8, the bytes of a uuid.
type Key interface {
	int64 | string | [16]byte
}

// ShardFor returns the number of the key's shard, or bucket, from 0, as shard_for() of the extension
// computes it. It panics for a number of shards that is not positive.
func ShardFor[K Key](key K, shards int32) int32 {
	if shards <= 0 {
		panic(fmt.Sprintf("shardmaster: %d shards: there must be one at least", shards))
	}
	return int32(hashOf(any(key)) % uint64(shards))
}

func hashOf(key any) uint64 {
	switch key := key.(type) {
	case string:
		return xxhash.Sum64String(key)
	case [16]byte:
		return xxhash.Sum64(key[:])
	case int64:
		var bytes [8]byte
		binary.LittleEndian.PutUint64(bytes[:], uint64(key))
		return xxhash.Sum64(bytes[:])
	}
	panic("shardmaster: a key of another type") // which the compiler has refused
}
