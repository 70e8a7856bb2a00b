package shardmaster

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// linesOf reads a file of what is published for all languages; each line is a JSON array.
func linesOf(t *testing.T, file string) [][]any {
	directory := os.Getenv("SHARDMASTER_VECTORS")
	if directory == "" {
		directory = ".."
	}
	opened, err := os.Open(filepath.Join(directory, file))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	lines := [][]any{}
	for scanner := bufio.NewScanner(opened); scanner.Scan(); {
		var line []any
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func shardOf(t *testing.T, kind, key string, count int32) int32 {
	switch kind {
	case "text":
		return ShardFor(key, count)
	case "bigint":
		number, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return ShardFor(number, count)
	case "uuid":
		var uuid [16]byte
		if _, err := hex.Decode(uuid[:], []byte(strings.ReplaceAll(key, "-", ""))); err != nil {
			t.Fatal(err)
		}
		return ShardFor(uuid, count)
	}
	t.Fatalf("a key of the type %s", kind)
	return 0
}

func TestHash(t *testing.T) {
	vectors := linesOf(t, "vectors.jsonl")
	if len(vectors) < 1000 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for _, line := range vectors {
		kind, key, count, shard := line[0].(string), line[1].(string), int32(line[2].(float64)), int32(line[3].(float64))
		if found := shardOf(t, kind, key, count); found != shard {
			t.Errorf("%s %q of %d: %d, not %d", kind, key, count, found, shard)
		}
	}
}

func TestHashOfNoShards(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no shards, and no panic")
		}
	}()
	ShardFor("key", 0)
}

func TestMoving(t *testing.T) {
	seen := map[bool]int{}
	for _, line := range linesOf(t, "moving.jsonl") {
		state, moving := line[0].(string), line[1].(bool)
		seen[moving]++
		if IsMoving(state) != moving {
			t.Errorf("%s: not %v", state, moving)
		}
	}
	if seen[true] == 0 || seen[false] == 0 || IsMoving("") {
		t.Error(seen)
	}
}
