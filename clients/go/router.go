package shardmaster

import (
	"context"
	"fmt"
	"time"
)

const (
	query = "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route($1, 'write', $2)"
	// For one question: its session may have to be opened, and its statement ends after 30 s.
	answerLimit = 45 * time.Second
	// Before a transaction is tried again, and what that grows to.
	firstPause   = 5 * time.Millisecond
	longestPause = 200 * time.Millisecond
)

// Router has the routes of one keyspace, from the master. Any number of goroutines may use it. It has
// up to four sessions there for questions, and one that listens.
//
// What is kept may be older than the master by the time that a notification takes. That is no danger
// to writes: a shard refuses keys that have left it. So a key whose route is kept is found even while
// the master cannot be reached.
type Router struct {
	keyspace string
	pool     *pool
	listener *listener
	routes   routes
}

// New makes a router for a keyspace, "default" where there is but one. An error of its first sessions
// is the caller's. The context is for these alone: Close ends a router.
func New(ctx context.Context, open Open, keyspace string) (*Router, error) {
	pool := newPool(open)
	session, err := pool.take(ctx)
	if err != nil {
		return nil, err
	}
	pool.give(session, false)
	listener, err := listen(ctx, open)
	if err != nil {
		pool.close()
		return nil, err
	}
	return &Router{keyspace: keyspace, pool: pool, listener: listener}, nil
}

// Route says where the key is written: as kept, or as the master says. SM002: it is between two
// shards; 42704: nobody has assigned it.
func (r *Router) Route(ctx context.Context, key string) (Route, error) {
	if route, ok := r.routes.fresh(key, r.listener.now()); ok {
		return route, nil
	}
	route, err := r.ask(ctx, key)
	if isAnswered(ctx, err) {
		return route, err
	}
	// On a new session: the first one was lost.
	if route, err = r.ask(ctx, key); isAnswered(ctx, err) {
		return route, err
	}
	// Without the master: the old shard refuses a key that has left it.
	if old, ok := r.routes.old(key, r.listener.now()); ok {
		return old, nil
	}
	return route, err
}

// isAnswered says whether there is nothing more to try: neither a lost session, nor a master that
// could not be reached. Nor is there for one who does not wait any more.
func isAnswered(ctx context.Context, err error) bool {
	return err == nil || err == ErrClosed || ctx.Err() != nil || !isLost(err)
}

func (r *Router) ask(ctx context.Context, key string) (Route, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	session, err := r.pool.take(ctx)
	if err != nil {
		return Route{}, err
	}
	// What is said while it is asked may be newer than the answer.
	heard := r.listener.now()
	route, err := session.Route(ctx, query, key, r.keyspace)
	r.pool.give(session, err != nil && isLost(err))
	if err == nil {
		r.routes.keep(key, route, heard)
	}
	return route, err
}

// Forget makes the next question about the key go to the master.
func (r *Router) Forget(key string) { r.routes.forget(key) }

// Call does one transaction where the key is. If that shard says that the key moves (IsMoving), all of
// it is done again, at the shard that the master names then, until the limit or the context is over.
// Other errors are the caller's.
func (r *Router) Call(
	ctx context.Context, key string, limit time.Duration, transaction func(context.Context, Route) error,
) error {
	deadline, pause := time.Now().Add(limit), firstPause
	for {
		route, err := r.Route(ctx, key)
		if err == nil {
			err = transaction(ctx, route)
		}
		if err == nil || !IsMoving(SQLState(err)) || !time.Now().Before(deadline) {
			return err
		}
		r.Forget(key)
		if !rest(ctx, &pause, longestPause) {
			return fmt.Errorf("%w: %q moves: %v", ctx.Err(), key, err)
		}
	}
}

// Close ends the sessions with the master.
func (r *Router) Close() {
	r.listener.close()
	r.pool.close()
}
