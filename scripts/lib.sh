# Sourced by the other scripts: where things are, and who runs servers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD

# A backtrace in a server's environment ends up in the DETAIL of its errors.
unset RUST_BACKTRACE
# Clients must reach the throw-away servers and nothing else.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGSERVICE PGSERVICEFILE PGPASSFILE PGOPTIONS PGDATA

export PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}
# One PGRX_HOME for every cargo command: another one would rebuild everything.
export PGRX_HOME=${SHARDMASTER_PGRX_HOME:-$ROOT/target/pgrx-home}
# So would other flags of the compiler: build.rs gives them to the extension alone.
export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1

# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    SERVER_USER=postgres
    as_user() { (cd /tmp && exec runuser -u "$SERVER_USER" -- "$@"); }
else
    SERVER_USER=$(id -un)
    as_user() { (cd /tmp && exec "$@"); }
fi

# A directory of this run that the servers' user can use; the checkout may lie
# where that user cannot look. Whatever was started below it is stopped at exit.
# make_run_dir [PARENT]
make_run_dir() {
    RUN=$(mktemp -d "${1:-/tmp}/shardmaster-run.XXXXXX")
    chmod 755 "$RUN"
    chown "$SERVER_USER" "$RUN"
    trap clean_run_dir EXIT
    trap 'exit 130' INT TERM HUP
}

clean_run_dir() {
    local file pid
    if declare -F end_jobs >/dev/null; then end_jobs; fi
    end_keepers
    while read -r file; do
        # One that a test has stopped hears nothing else.
        pid=$(head -n 1 "$file" 2>/dev/null) || continue
        if [ "$(readlink "/proc/$pid/cwd")" = "${file%/*}" ]; then kill -CONT "$pid" || true; fi
        as_user "$BINDIR/pg_ctl" stop -D "${file%/*}" -m immediate -t 30 >/dev/null 2>&1 || true
    done < <(find "$RUN" -maxdepth 4 -name postmaster.pid 2>/dev/null)
    for file in small-disk full-disk; do
        if [ -d "$RUN/$file" ]; then umount "$RUN/$file" 2>/dev/null || true; fi
    done
    rm -rf "$RUN"
}

# Programs that would start a server again, or keep others: those whose numbers are below the
# directory, if they still run in it.
end_keepers() {
    local file pid
    while read -r file; do
        pid=$(cat "$file")
        case "$(readlink "/proc/$pid/cwd" 2>/dev/null)" in
            "$RUN"/*) kill -9 "$pid" 2>/dev/null || true ;;
        esac
    done < <(find "$RUN" -maxdepth 3 \( -name patroni.pid -o -name etcd.pid \) 2>/dev/null)
}

# Sets BINDIR: the programs of the private copy of PostgreSQL.
find_bindir() {
    BINDIR=$(scripts/prefix.sh)
}

# Tells pgrx which PostgreSQL it builds for.
init_pgrx() {
    if ! grep -qs "\"$BINDIR/pg_config\"" "$PGRX_HOME/config.toml"; then
        mkdir -p "$PGRX_HOME"
        cargo pgrx init --pg15="$BINDIR/pg_config"
    fi
}

# start_server NAME DATABASE: a throw-away server below $RUN with the extension
# preloaded. Its environment names its own socket, so that a connection string of
# a shard needs no host: expected output then holds no path.
start_server() {
    local dir=$RUN/$1 database=$2
    as_user mkdir -p "$dir"
    as_user "$BINDIR/initdb" --no-sync -A trust -U postgres -E UTF8 --locale=C.UTF-8 -D "$dir/data" >"$RUN/$1.initdb.log"
    as_user tee -a "$dir/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
unix_socket_directories = '$dir'
fsync = off
max_prepared_transactions = 10
max_worker_processes = 20
shared_preload_libraries = 'shardmaster'
shardmaster.database = '$database'
CONF
    as_user env PGHOST="$dir" PGUSER=postgres "$BINDIR/pg_ctl" -w -s -D "$dir/data" -l "$dir/log" start
    as_user "$BINDIR/createdb" -h "$dir" -U postgres "$database"
}

stop_server() {
    as_user "$BINDIR/pg_ctl" -w -s -D "$RUN/$1/data" -m fast stop
}
