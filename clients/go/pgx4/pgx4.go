// Package pgx4 brings a router its sessions with the driver pgx, version 4.
package pgx4

import (
	"context"

	"github.com/jackc/pgx/v4"

	"shardmaster"
)

// Connect returns how a router opens sessions by a configuration of the master. It can be one of
// ParseConfig, with a password, TLS or a way to dial of one's own.
func Connect(config *pgx.ConnConfig) shardmaster.Open {
	config = config.Copy()
	// What hears notifications is the router, and nobody beside it.
	config.OnNotification = nil
	return func(ctx context.Context) (shardmaster.Session, error) {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		return session{conn}, nil
	}
}

type session struct{ conn *pgx.Conn }

func (s session) Exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

func (s session) Route(ctx context.Context, sql, key, keyspace string) (shardmaster.Route, error) {
	var route shardmaster.Route
	var conninfo *string
	row := s.conn.QueryRow(ctx, sql, key, keyspace)
	err := row.Scan(&route.ShardKey, &conninfo, &route.Namespace, &route.Version)
	if conninfo != nil {
		route.Conninfo = *conninfo
	}
	return route, err
}

func (s session) Wait(ctx context.Context) (string, error) {
	said, err := s.conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return said.Payload, nil
}

func (s session) Close(ctx context.Context) error { return s.conn.Close(ctx) }
