package shardmaster

import (
	"sync"
	"time"
)

const (
	// Keys that are kept; where there are more, the router begins anew.
	mostRoutes = 100_000
	// After this the master is asked again: a notification may have been lost with a session that
	// nobody has missed yet.
	longestKept = 30 * time.Second
	// How long an old route is used before a master that could not be reached is tried again.
	withoutMaster = time.Second
)

// entry is a route, what the listener had heard before it was asked for, and until when it is used.
type entry struct {
	route Route
	heard uint64
	until time.Time
}

// routes are those that are kept.
type routes struct {
	mutex sync.Mutex
	kept  map[string]entry
}

// fresh returns the key's route, unless the listener has heard something since, or it is old.
func (r *routes) fresh(key string, heard uint64) (Route, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, ok := r.kept[key]
	return found.route, ok && found.heard == heard && time.Now().Before(found.until)
}

// keep takes what the master has said, after heard.
func (r *routes) keep(key string, route Route, heard uint64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.kept == nil || len(r.kept) >= mostRoutes {
		r.kept = map[string]entry{}
	}
	r.kept[key] = entry{route, heard, time.Now().Add(longestKept)}
}

// old returns an old route, for a while, if the master cannot be reached.
func (r *routes) old(key string, heard uint64) (Route, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, ok := r.kept[key]
	if ok {
		r.kept[key] = entry{found.route, heard, time.Now().Add(withoutMaster)}
	}
	return found.route, ok
}

func (r *routes) forget(key string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.kept, key)
}
