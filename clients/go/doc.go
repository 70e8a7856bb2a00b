// Package shardmaster is the client's side of shardmaster, an extension that shards PostgreSQL with
// plain servers: it asks the master where a key is, keeps the answer, listens for changes, and does a
// transaction again when its key has moved. It has the hash of keys, too.
//
// It knows no driver: packages pgx4 and pgx5 beside it bring sessions of pgx.
package shardmaster
