# Sourced by test.sh: the #[pg_test]s, run inside a throw-away server.
#
# pgrx's own runner opens a TCP port, needs sudo for root and builds everything in
# the debug profile once more. A #[pg_test] is an SQL function in the schema
# `tests`, so each is called in a transaction that is rolled back. An expected error of
# #[pg_test(error = ..)] is not looked at: src/tests/ catches errors in SQL.

run_pg_tests() {
    local status=0 name ok=0 bad=0
    if ! grep -rqs '#\[pg_test' src; then
        echo "no #[pg_test]"
        return
    fi
    built= # the next suite installs the ordinary build again
    # Without link-time optimisation; the harness uses the profile, too.
    features pg_test
    cargo pgrx install --profile harness "${FEATURES[@]}" --pg-config "$BINDIR/pg_config" >"$LOGS/pgtest-build.log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        cat "$LOGS/pgtest-build.log"
        tally "pg_test" 0 1
        return
    fi
    start_server pgtest pgrx_tests
    local sql=(as_user "$BINDIR/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$RUN/pgtest" -U postgres -d pgrx_tests)
    "${sql[@]}" -c 'CREATE EXTENSION shardmaster'
    while read -r -u 9 name; do
        if "${sql[@]}" -c "BEGIN" -c "SELECT tests.\"$name\"()" -c "ROLLBACK" >"$LOGS/pgtest.log" 2>&1 </dev/null; then
            echo "test $name ... ok"
            ok=$((ok + 1))
        else
            echo "test $name ... FAILED"
            cat "$LOGS/pgtest.log"
            bad=$((bad + 1))
        fi
    done 9< <("${sql[@]}" -c "SELECT proname FROM pg_proc WHERE pronamespace = 'tests'::regnamespace ORDER BY 1")
    stop_server pgtest
    tally "pg_test" "$ok" "$bad"
}

echo "== pg_test"
run_pg_tests
