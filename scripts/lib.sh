# Sourced by the other scripts: where things are, and who runs servers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD

# A backtrace in a server's environment ends up in the DETAIL of its errors.
unset RUST_BACKTRACE
# Clients must reach the throw-away servers and nothing else.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGSERVICE PGSERVICEFILE PGPASSFILE PGOPTIONS PGDATA

# The version that the extension is built for: that of PG_CONFIG, or with PG=18 one that is
# fetched. Without either Debian's own.
default_major() {
    local config major newest=
    for config in /usr/lib/postgresql/*/bin/pg_config; do
        major=${config#/usr/lib/postgresql/}
        major=${major%%/*}
        if [ -x "$config" ] && [ -d "$("$config" --includedir-server)" ]; then newest=$major; fi
    done
    # 11, 12, 13, and what comes after them.
    case $newest:$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") in
        :bullseye) echo 13 ;;
        :bookworm) echo 15 ;;
        :trixie) echo 17 ;;
        :*) echo 18 ;;
        *) echo "$newest" ;;
    esac
}
export PG=${PG:-}
if [ -n "$PG" ]; then
    . scripts/installations.sh
    PG_CONFIG=$(pg_config_of "$PG")
fi
export PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$(default_major)/bin/pg_config}
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

# Sets MAJOR, the version of PG_CONFIG, and where pgrx keeps its configuration for it.
find_version() {
    MAJOR=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
    # One PGRX_HOME for every cargo command: another one would rebuild everything.
    PGRX_HOME=${SHARDMASTER_PGRX_HOME:-$ROOT/target/pgrx-home}
    [ "$MAJOR" = 15 ] || PGRX_HOME+=-$MAJOR
    export PGRX_HOME
}

# Sets BINDIR as well: the programs of the private copy of PostgreSQL.
find_bindir() {
    [ -z "$PG" ] || fetch_installation "$PG"
    find_version
    # As it is, for one who asks whether what is installed works.
    if [ -n "${SHARDMASTER_INSTALLED:-}" ]; then
        BINDIR=$("$PG_CONFIG" --bindir)
        return
    fi
    BINDIR=$(scripts/prefix.sh)
    find_libs
}

# Sets SHARDMASTER_RPATH where the server comes with a libpq of its own, which its other modules load: of two in one process
# one answers for both, so that an older one would keep a standby from reading its primary_conninfo, or postgres_fdw from
# loading. One without TLS is left to those; before 14 there is none that would do.
find_rpath() {
    local libdir own system
    unset SHARDMASTER_RPATH
    libdir=$("$PG_CONFIG" --libdir) && own=$libdir/libpq.so.5
    system=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's/.*libpq\.so\.5 .*=> //p' | head -n 1) || true
    if [ "$MAJOR" -lt 14 ] || [ ! -e "$own" ] || [ "$own" -ef "${system:-/}" ]; then return 0; fi
    # What a libpq without TLS says of an sslmode.
    if ! grep -q 'SSL support is not compiled in' "$own"; then
        # Found from wherever it is installed.
        SHARDMASTER_RPATH="\$ORIGIN/$(realpath --relative-to="$("$PG_CONFIG" --pkglibdir)" "$libdir")"
        export SHARDMASTER_RPATH
    else
        echo "$own can do no TLS: the extension takes ${system:-no libpq}" >&2
    fi
}

# What `make` has built for that version, as it is to be installed.
built_files() { echo "$ROOT/target/built/${SHARDMASTER_PROFILE:-release}/$MAJOR"; }

# Libraries that came with BINDIR, and that no other program asks for.
find_libs() {
    local libs=${BINDIR%/usr/lib/postgresql/*}/libs
    if [ -d "$libs" ]; then export LD_LIBRARY_PATH=$libs; fi
}

# features [MORE]: sets FEATURES, the words by which cargo builds the extension for that version.
features() {
    FEATURES=(--no-default-features --features "pg$MAJOR${1:+ $1}")
    # Those of a plain cargo command, so that it builds nothing again.
    if [ "$MAJOR" = 15 ]; then FEATURES=(${1:+--features "$1"}); fi
}

# Tells pgrx which PostgreSQL it builds for.
init_pgrx() {
    if ! grep -qs "\"$BINDIR/pg_config\"" "$PGRX_HOME/config.toml"; then
        mkdir -p "$PGRX_HOME"
        cargo pgrx init "--pg$MAJOR=$BINDIR/pg_config"
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
    as_user env PGHOST="$dir" PGUSER=postgres "$BINDIR/pg_ctl" -w -s -D "$dir/data" -l "$dir/log" start || {
        cat "$dir/log"
        return 1
    }
    as_user "$BINDIR/createdb" -h "$dir" -U postgres "$database"
}

stop_server() {
    as_user "$BINDIR/pg_ctl" -w -s -D "$RUN/$1/data" -m fast stop
}
