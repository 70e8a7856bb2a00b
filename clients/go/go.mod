module shardmaster

go 1.19

require (
	github.com/cespare/xxhash/v2 v2.1.1
	github.com/jackc/pgx/v4 v4.15.0
	github.com/jackc/pgx/v5 v5.5.5
)
