# Sourced by test.sh: pg_regress and isolation specs against throw-away servers.
#
#   tests/sql/NAME.sql, tests/expected/NAME.out, listed in tests/schedule
#   tests/specs/NAME.spec, tests/expected/NAME.out, listed in tests/isolation_schedule
#
# The server has the databases shard_a and shard_b and the roles `owner`, `mover`
# and `app`; `dbname=shard_a user=mover` is a complete connection string there. Where
# the output depends on the server's version, NAME_1.out is right, too.

# The test programs of PostgreSQL, below the private copy's pgxs.
pgxs_test() { echo "$("$BINDIR/pg_config" --pkglibdir)/pgxs/src/test/$1"; }

prepare_inputs() {
    local inputs=$RUN/$1-in
    cp -r tests "$inputs"
    cp clients/vectors.jsonl "$inputs"
    sed 's/{schema}/shardmaster_agent/g' sql/agent/shard_for.sql >"$inputs/shard_for.sql"
    mkdir -p "$inputs/expected"
    # A test without an expected file shows its whole output as the difference.
    local input name
    for input in tests/sql/*.sql tests/specs/*.spec; do
        name=${input##*/}
        [ ! -e "$input" ] || touch -a "$inputs/expected/${name%.*}.out"
    done
    mkdir -p "$RUN/$1-out"
    chown -R "$SERVER_USER" "$inputs" "$RUN/$1-out"
}

prepare_databases() {
    local db
    for db in shard_a shard_b; do
        as_user "$BINDIR/createdb" -h "$RUN/$1" -U postgres "$db"
    done
    as_user "$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -h "$RUN/$1" -U postgres -f "$RUN/$1-in/setup.sql" "$2"
}

# The program that runs such tests. Debian has those of several sessions from 15 on: to an older
# server they are a client like any other.
test_program() {
    local program=isolation/pg_isolation_regress others
    [ "$1" = isolation ] || program=regress/pg_regress
    others=("$(pgxs_test "$program")" /usr/lib/postgresql/*/lib/pgxs/src/test/"$program")
    for program in "${others[@]}"; do
        [ ! -x "$program" ] || break
    done
    echo "$program"
}

# run_schedule SUITE KIND SCHEDULE: counts the lines "ok" and "FAILED".
run_schedule() {
    local suite=$1 kind=$2 schedule=$3 status=0 program ok bad inputs=$RUN/$1-in
    program=$(test_program "$kind")
    echo "== $suite"
    if ! grep -q '^test:' "tests/$schedule" 2>/dev/null; then
        echo "no tests in tests/$schedule"
        return
    fi
    prepare_inputs "$suite"
    start_server "$suite" "${kind}_test"
    prepare_databases "$suite" "${kind}_test"
    # Who expires leases there is a step of the test alone.
    [ "$kind" != isolation ] || as_user "$BINDIR/psql" -X -q -o /dev/null -h "$RUN/$suite" -U postgres -d "${kind}_test" \
        -c "ALTER SYSTEM SET shardmaster.lease_sweep_interval = '1h'" -c "SELECT pg_reload_conf()"
    # Seconds after which a step that hangs is cancelled.
    as_user env HOME="$RUN" SHARDMASTER_INPUTS="$inputs" PGISOLATIONTIMEOUT=60 "$program" --bindir="$BINDIR" --inputdir="$inputs" --outputdir="$RUN/$suite-out" \
        --host="$RUN/$suite" --user=postgres --dbname="${kind}_test" --use-existing \
        --schedule="$inputs/$schedule" >"$LOGS/$suite.log" 2>&1 </dev/null || status=$?
    cat "$LOGS/$suite.log"
    rm -rf "target/$suite"
    cp -r "$RUN/$suite-out" "target/$suite"
    # PostgreSQL 15 writes "test NAME ... ok", 16 "ok NUMBER - NAME".
    ok=$(grep -cE '\.\.\. ok |^ok [0-9]' "$LOGS/$suite.log" || true)
    bad=$(grep -cE '\.\.\. FAILED|^not ok [0-9]' "$LOGS/$suite.log" || true)
    if [ "$status" -ne 0 ]; then
        [ "$bad" -gt 0 ] || bad=1
        cat "target/$suite/regression.diffs" 2>/dev/null || tail -n 40 "$RUN/$suite/log"
        echo "results are in target/$suite/results"
    fi
    stop_server "$suite"
    tally "$suite" "$ok" "$bad"
}

run_regress() { run_schedule regress regress schedule; }
run_isolation() { run_schedule isolation isolation isolation_schedule; }
