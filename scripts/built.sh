# Sourced: the suites on servers of other major versions, for which the extension is built.
. scripts/installations.sh

# Those that are built for, the newest last: the oldest and the newest, and in long runs all that there are.
every_runs_majors=(13 18)
built_majors=("${every_runs_majors[@]}")
[ -z "${SHARDMASTER_SOAK:-}" ] || built_majors=("${other_majors[@]}")

# build_major MAJOR: builds the extension for that version, into a private copy of it, which
# $RUN/built/MAJOR names. The builds share the target directory with the harness, but not
# pgrx's configuration: a change of that would rebuild everything for the system's version.
build_major() {
    local bindir
    [ ! -e "$RUN/built/$1" ] || return 0
    mkdir -p "$RUN/built"
    # What is under test is built, and in use.
    if [ "$1" = "$PG" ]; then ln -s "${BINDIR%/bin}" "$RUN/built/$1" && return 0; fi
    PG=$1 scripts/build.sh >"$LOGS/build-$1.log" 2>&1 && bindir=$(PG=$1 scripts/prefix.sh) || {
        cat "$LOGS/build-$1.log"
        # Tests wait for it.
        touch "$RUN/built/$1.failed"
        return 1
    }
    ln -s "${bindir%/bin}" "$RUN/built/$1"
}

# on_majors MAJOR ...: what a person at psql sees, and sessions beside each other, on each version. All of it
# is one job, whose compiler runs beside tests that wait.
on_majors() {
    local major
    # What other programs unpack, too, and what they were built before.
    for major in "$@"; do fetch_installation "$major" || true; done
    # Else they would wait for the compiler's lock.
    case " ${suites[*]} " in *" harness "*) harness_programs ;; esac
    beside majors-built each_major "$@"
}

each_major() {
    local major
    for major in "$@"; do
        if ! build_major "$major"; then
            tally "build for PostgreSQL $major" 0 1
            continue
        fi
        as_user mkdir -p "$RUN/on-$major"
        (run_on_major "$major" run_schedule "regress-$major" regress schedule)
        # Of several versions on the newest, in long runs on each.
        if [ "$major" = "${!#}" ] || [ -n "${SHARDMASTER_SOAK:-}" ]; then
            (run_on_major "$major" run_schedule "isolation-$major" isolation isolation_schedule)
        fi
    done
    # Whose servers are upgraded to 18 by pgrx-tests/tests/masters/pg_upgrade.rs.
    build_major 16 || tally "build for PostgreSQL 16" 0 1
}

# run_on_major MAJOR COMMAND ...: in a job of its own.
run_on_major() {
    BINDIR=$(readlink -f "$RUN/built/$1")/bin
    find_libs
    SERVERS_DIR=$RUN/on-$1
    MAY_LACK=yes
    shift
    "$@"
}
