package shardmaster

import "context"

// Route is where a key is to be found.
type Route struct {
	ShardKey string
	// Conninfo is a connection string of libpq; empty: the master's own database.
	Conninfo string
	// Namespace is the schema to work in.
	Namespace string
	// Version is that of the keyspace's routing.
	Version int64
}

// Session is one at the master. It is used by one goroutine at a time, and every call ends when its
// context does.
type Session interface {
	// Exec runs statements without arguments.
	Exec(ctx context.Context, sql string) error
	// Route asks a query with two arguments, whose one row is a Route, with NULL for no Conninfo.
	Route(ctx context.Context, sql, key, keyspace string) (Route, error)
	// Wait returns the payload of the next notification. The session can be used on when the
	// context has ended before there was one.
	Wait(ctx context.Context) (payload string, err error)
	Close(ctx context.Context) error
}

// Open opens a session at the master, each time that one is needed. It ends when its context does.
type Open func(ctx context.Context) (Session, error)
