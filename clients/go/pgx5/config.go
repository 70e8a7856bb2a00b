package pgx5

import (
	"context"

	"github.com/jackc/pgx/v5"

	"shardmaster"
)

// ParseConfig returns pgx's configuration of a connection string of libpq, such as that of a route, with
// what libpq knows and pgx does not: a hostaddr is where a host is reached.
func ParseConfig(conninfo string) (*pgx.ConnConfig, error) {
	text, addresses, err := shardmaster.ForDriver(conninfo)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, err
	}
	if lookUp := config.LookupFunc; len(addresses) > 0 {
		config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			if address, ok := addresses[host]; ok {
				return []string{address}, nil
			}
			return lookUp(ctx, host)
		}
	}
	return config, nil
}
