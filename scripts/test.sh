#!/usr/bin/env bash
# test.sh SUITE ...: runs the suites and sums them in the last line. What runs servers runs
# beside what follows it.
. "$(dirname "$0")/lib.sh"
. scripts/jobs.sh
. scripts/harness.sh
. scripts/client_packages.sh
. scripts/built.sh
. scripts/released.sh

# Where the servers' data lies: in memory where there is plenty. Each test makes servers of its
# own, and half of what the kernel did for them was to copy files and to make new ones; on a disk
# a test of the long forms took five times as much of a processor. Hours of load need more room.
run_parent() {
    local free room=8
    [ -z "${SHARDMASTER_SOAK:-}" ] || room=16
    free=$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo 0)
    if [ "${free:-0}" -ge $((room + 4)) ] && [ -w /dev/shm ] &&
        [ "$(stat -f -c %T /dev/shm)" = tmpfs ] &&
        [ "$(df --output=avail -k /dev/shm | tail -1)" -ge $((room * 1048576)) ]; then
        echo /dev/shm
    else
        echo /tmp
    fi
}

find_bindir
if [ -n "${SHARDMASTER_INSTALLED:-}" ] && [ ! -e "$("$PG_CONFIG" --sharedir)/extension/shardmaster.control" ]; then
    echo "shardmaster is not installed in the PostgreSQL of $PG_CONFIG: \`make install\` does that" >&2
    exit 1
fi
# A server from a package may lack what others have.
[ -z "$PG" ] || MAY_LACK=yes
[ -n "${SHARDMASTER_INSTALLED:-}" ] || init_pgrx
make_run_dir "$(run_parent)"
LOGS=$ROOT/target/test-logs
# One profile for all that is tested: each other one builds every dependency again.
export SHARDMASTER_PROFILE=${SHARDMASTER_PROFILE:-harness}
mkdir -p "$LOGS"

# one NAME COMMAND ...: a check that passes or fails as a whole.
one() {
    local name=$1
    shift
    echo "== $name"
    if "$@"; then tally "$name" 1 0; else tally "$name" 0 1; fi
}

# cargo_results NAME LOG STATUS: adds up the closing lines of test programs.
cargo_results() {
    local ok bad
    ok=$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$2" | paste -sd+ | sed 's/^$/0/')
    bad=$(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$2" | paste -sd+ | sed 's/^$/0/')
    ok=$((ok)) bad=$((bad))
    if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    tally "$1" "$ok" "$bad"
}

build_extension() {
    [ -z "${built:-}${SHARDMASTER_INSTALLED:-}" ] || return 0
    built=yes
    scripts/build.sh && install_released || { tally build 0 1; summary; }
}

suite_lint() {
    one "cargo fmt" cargo fmt --all --check
    one "how hard documents are to read" python3 scripts/doc_measure.py README.md $(find docs -name '*.md' ! -name SUMMARY.md | sort)
    one "how messages are written" python3 scripts/message_style.py $(find src sql -name '*.rs' ! -path '*/tests*' -o -name '*.sql' ! -path '*/released/*' ! -name 'shardmaster--*')
    one "faults of the mutation test" scripts/mutations.sh --check
    features pg_test
    one "clippy, extension" cargo clippy -q --profile harness "${FEATURES[@]}" -- -D warnings
    one "clippy, tests" cargo clippy -q -p shardmaster-tests -p shardmaster-client -p shardmaster-model --profile harness --all-targets -- -D warnings
}

# Tests of the extension's modules that need no server.
suite_pure() {
    local status=0
    echo "== pure tests for PostgreSQL $MAJOR"
    features
    cargo test -q --profile harness --lib "${FEATURES[@]}" >"$LOGS/pure.log" 2>&1 || status=$?
    # Whether docs/internals/model-map.md still names what is there: any function that moves is found here.
    cargo test -q -p shardmaster-model --profile harness --test code >>"$LOGS/pure.log" 2>&1 || status=$?
    cat "$LOGS/pure.log"
    cargo_results "pure tests" "$LOGS/pure.log" "$status"
}

harness_programs() {
    build_extension
    if [ ! -e "$RUN/programs" ]; then
        build_harness >"$RUN/programs" || { tally "harness build" 0 1; summary; }
        copy_programs
        copy_clients || { tally "packages of the clients" 0 1; summary; }
        copy_tests
        mount_small_disk
    fi
}

# servers_for NAME: other versions of PostgreSQL that a test program needs.
servers_for() {
    case $1 in
        split::major_versions | security::minimal_mover) copy_majors ;;
        # Its tests wait for what that job builds.
        masters::pg_upgrade) running_named majors-built || { build_major 16 && build_major 18; } ;;
    esac
}

# start_harness_test NAME: it runs when all suites have begun.
start_harness_test() {
    if servers_for "$1"; then plan "$1"; else tally "pgrx-tests: $1" 0 1; fi
}

suite_harness() {
    local name
    harness_programs
    # A descriptor of its own: what is started must not read the list.
    while read -r -u 9 name _; do
        [ "$name" = "$by_itself" ] || start_harness_test "$name"
    done 9<"$RUN/programs"
}

# harness:NAME: the tests of a folder or of a file, as files_named knows them.
suite_harness_one() {
    local name names
    harness_programs
    names=$(files_named "$1") || { tally "pgrx-tests: $1" 0 1; return; }
    while read -r -u 9 name; do start_harness_test "$name"; done 9<<<"$names"
}

# on:MAJOR:NAME: the same on another version.
suite_harness_on() {
    local name names
    harness_programs
    names=$(files_named "$2") || { tally "pgrx-tests: $2" 0 1; return; }
    # What needs no other version does not wait for it.
    [ -e "$RUN/plan.harness" ] || start_planned
    await_named majors-built
    if ! build_major "$1"; then
        tally "build for PostgreSQL $1" 0 1
        return
    fi
    as_user mkdir -p "$RUN/on-$1"
    while read -r -u 9 name; do (run_on_major "$1" plan "$name" "$name-$1"); done 9<<<"$names"
}

# The protocol, every state that it can come to.
suite_model() {
    . scripts/model.sh
    : >"$LOGS/model.log"
    if build_model; then beside model run_model; else tally "model build" 0 1; fi
}

# The extension is installed, comes up, and does so again: what psql sees of that.
suite_smoke() { build_extension; . scripts/smoke.sh; beside smoke run_smoke; }
# Types of all versions; of the oldest and the newest; of those that `make test` does not build.
suite_typecheck() { . scripts/typecheck.sh; run_typecheck; }
suite_typecheck_ends() { . scripts/typecheck.sh; run_typecheck pg14 pg15 pg16 pg17; }
suite_typecheck_rest() { . scripts/typecheck.sh; run_typecheck pg15 "${every_runs_majors[@]/#/pg}"; }
# majors: other versions that can be built for, the oldest and the newest, in long runs each; major:N: one.
suite_majors() { . scripts/regress.sh; on_majors "${built_majors[@]}"; }
suite_major() { . scripts/regress.sh; on_majors "$1"; }
suite_server() {
    . scripts/pgtest.sh
    if build_pg_tests; then beside server run_pg_tests; else tally pg_test 0 1; fi
}
suite_regress() { build_extension; . scripts/regress.sh; beside regress run_regress; }
suite_isolation() { build_extension; . scripts/regress.sh; beside isolation run_isolation; }
# Made before the job begins: the programs beside servers need them, too.
suite_clients() {
    . scripts/clients.sh
    one "packages of the clients" all_client_packages
    beside clients run_clients
}
suite_package() { build_extension; . scripts/docs.sh; . scripts/package_suite.sh; beside package run_package; }
suite_updates() { build_extension; . scripts/updates.sh; beside updates run_updates; }
suite_docs() { build_extension; . scripts/docs.sh; beside docs run_docs; }

summary() {
    await_jobs
    echo
    echo "$((SECONDS - started)) s, of which processors were idle for $(idle_share) %"
    if [ "${#failures[@]}" -gt 0 ]; then
        printf 'failed: %s\n' "${failures[@]}"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

suites=("$@")
started=$SECONDS
keep_results
for suite in "$@"; do
    case $suite in
        harness:*) suite_harness_one "${suite#harness:}" ;;
        on:*:*) IFS=: read -r _ major name <<<"$suite"; suite_harness_on "$major" "$name" ;;
        major:*) suite_major "${suite#major:}" ;;
        *) "suite_$suite" ;;
    esac
    echo "-- $suite: $((SECONDS - started)) s since the start"
done
start_planned
summary
