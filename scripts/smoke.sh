# Sourced by test.sh: the extension installs, its workers come up, and they do so again after a restart. Without the programs
# of pgrx-tests, which take minutes to build.

smoke_sql() { as_user "$BINDIR/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$RUN/smoke" -U postgres -d app -c "$1"; }

# Until all is well, for so long.
smoke_healthy() {
    local seen= try
    for try in {1..300}; do
        seen=$(smoke_sql "SELECT item, value, ok FROM shard_status() WHERE ok IS NOT TRUE") || return 1
        [ -n "$seen" ] || return 0
        sleep 0.1
    done
    echo "$seen" && return 1
}

smoke_restarted() { stop_server smoke && as_user "$BINDIR/pg_ctl" -w -s -D "$RUN/smoke/data" -l "$RUN/smoke/log" start && smoke_healthy; }

smoke_routes() {
    smoke_sql "CREATE SCHEMA a; CREATE TABLE a.items (tenant text, id int, PRIMARY KEY (tenant, id));
        SELECT shard_add('a', namespace => 'a'), shard_table_add('items', 'tenant', key_type => 'text'), shard_assign('acme', 'a')" &&
        [ "$(smoke_sql "SELECT shard_of('acme')")" = a ]
}

run_smoke() {
    start_server smoke app
    one "the extension is created" smoke_sql "CREATE EXTENSION shardmaster"
    one "all is well" smoke_healthy
    one "a key is routed" smoke_routes
    one "all is well after a restart" smoke_restarted
    stop_server smoke
}
