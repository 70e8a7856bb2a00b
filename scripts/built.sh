# Sourced: the suites on servers of other major versions, for which the extension is built.
. scripts/installations.sh

# Those that every run builds for, the newest last.
built_majors=("${other_majors[@]}")
# Programs of pgrx-tests that run there, too, in long runs; `make test PG=18` runs all of them.
programs_on_majors=(zoo)
[ -n "${SHARDMASTER_SOAK:-}" ] || programs_on_majors=()

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
        return 1
    }
    ln -s "${bindir%/bin}" "$RUN/built/$1"
}

# on_majors MAJOR ...: what a person at psql sees, sessions beside each other, and programs of
# pgrx-tests, on each version. All of it is one job, whose compiler runs beside tests that wait.
on_majors() {
    local major
    # What other programs unpack, too, and what they were built before.
    for major in "$@"; do fetch_installation "$major" || true; done
    # Else they would wait for the compiler's lock.
    case " ${programs_on_majors[*]} ${suites[*]} " in *" zoo "* | *" harness "*) harness_programs ;; esac
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
        if [ "$major" = "${!#}" ] || [ -n "${SHARDMASTER_SOAK:-}" ]; then (run_on_major "$major" whole_major "$major"); fi
    done
}

whole_major() {
    local program
    run_schedule "isolation-$1" isolation isolation_schedule
    for program in "${programs_on_majors[@]}"; do harness_test "$program-$1" "$program"; done
}

# start_harness_test_on MAJOR PROGRAM: for that version there is a build.
start_harness_test_on() {
    as_user mkdir -p "$RUN/on-$1"
    beside "$2-$1" run_on_major "$1" harness_test "$2-$1" "$2"
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
