// Command follow counts on in the table `counter` of a tenant, wherever it is, by several goroutines,
// until they have counted 50 times on the shard to which it moves: follow MASTER TENANT SHARD OTHER.
// Prints the count. Then waits to be told that another tenant is on that shard, too.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v4"

	"shardmaster"
	"shardmaster/pgx4"
)

const (
	workers = 4
	limit   = 30 * time.Second
	// Well below the time after which a router asks in any case.
	toldLimit = 10 * time.Second
)

type app struct {
	router                *shardmaster.Router
	own                   *pgx.ConnConfig
	tenant, target, other string
	counted, there        atomic.Int64
	// The values that were counted: not one is lost, and none is done twice.
	values sync.Map
}

// worker has a session for each shard.
type worker struct {
	*app
	sessions map[string]*pgx.Conn
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (w *worker) session(ctx context.Context, route shardmaster.Route) (*pgx.Conn, error) {
	if session := w.sessions[route.ShardKey]; session != nil {
		return session, nil
	}
	config, err := pgx4.ParseConfig(route.Conninfo)
	if err != nil {
		return nil, err
	}
	// The shard's address for clients names neither a user nor files.
	config.User = w.own.User
	config.RuntimeParams["search_path"] = route.Namespace
	if config.TLSConfig != nil && w.own.TLSConfig != nil {
		config.TLSConfig.RootCAs = w.own.TLSConfig.RootCAs
	}
	session, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		w.sessions[route.ShardKey] = session
	}
	return session, err
}

func (w *worker) count(ctx context.Context, route shardmaster.Route) error {
	session, err := w.session(ctx, route)
	if err != nil {
		return err
	}
	var value int64
	text := "UPDATE counter SET value = value + 1 WHERE tenant = $1 RETURNING value"
	if err := session.QueryRow(ctx, text, w.tenant).Scan(&value); err != nil {
		return err
	}
	if _, twice := w.values.LoadOrStore(value, true); twice {
		panic(fmt.Sprintf("%d was counted twice", value))
	}
	w.counted.Add(1)
	if route.ShardKey == w.target {
		w.there.Add(1)
	}
	return nil
}

func (w *worker) run(ctx context.Context) {
	for w.there.Load() < 50 {
		if err := w.router.Call(ctx, w.tenant, limit, w.count); err != nil {
			panic(err)
		}
	}
	for _, session := range w.sessions {
		_ = session.Close(ctx)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	own := must(pgx4.ParseConfig(os.Args[1]))
	router := must(shardmaster.New(ctx, pgx4.Connect(own), "default"))
	defer router.Close()
	app := &app{router: router, own: own, tenant: os.Args[2], target: os.Args[3], other: os.Args[4]}
	var all sync.WaitGroup
	for i := 0; i < workers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			(&worker{app, map[string]*pgx.Conn{}}).run(ctx)
		}()
	}
	all.Wait()
	if must(router.Route(ctx, app.other)).ShardKey == app.target {
		panic(app.other + " is there already")
	}
	fmt.Println(app.counted.Load())
	for deadline := time.Now().Add(toldLimit); must(router.Route(ctx, app.other)).ShardKey != app.target; {
		if time.Now().After(deadline) {
			panic("nobody has told")
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("told")
}
