package shardmaster

import (
	"fmt"
	"testing"
)

func TestKeptRoutes(t *testing.T) {
	var kept routes
	route := Route{ShardKey: "a", Version: 1}
	if _, ok := kept.fresh("acme", 0); ok {
		t.Error("a route that nobody has asked for")
	}
	kept.keep("acme", route, 7)
	if found, ok := kept.fresh("acme", 7); !ok || found != route {
		t.Error(found, ok)
	}
	if _, ok := kept.fresh("acme", 8); ok {
		t.Error("a route that is older than what was heard")
	}
	if found, ok := kept.old("acme", 8); !ok || found != route {
		t.Error(found, ok)
	}
	if _, ok := kept.fresh("acme", 8); !ok {
		t.Error("an old route is used for a while")
	}
	kept.forget("acme")
	if _, ok := kept.old("acme", 8); ok {
		t.Error("a route that was forgotten")
	}
}

func TestKeptRoutesHaveAnEnd(t *testing.T) {
	var kept routes
	for i := 0; i <= mostRoutes; i++ {
		kept.keep(fmt.Sprint(i), Route{}, 0)
	}
	if len(kept.kept) != 1 {
		t.Error(len(kept.kept))
	}
}
