# Sourced by test.sh: the #[pg_test]s, run inside a throw-away server.
#
# pgrx's own runner opens a TCP port, needs sudo for root and builds everything in
# the debug profile once more. A #[pg_test] is an SQL function in the schema
# `tests`, so each is called in a transaction that is rolled back. An expected error of
# #[pg_test(error = ..)] is not looked at: src/tests/ catches errors in SQL.

# Another build of the extension than the one that all others have: it goes into a copy of the private PostgreSQL.
build_pg_tests() {
    local files=$ROOT/target/pgtest log=$LOGS/pgtest-build.log prefix=${BINDIR%"$("$PG_CONFIG" --bindir)"}
    PGTEST_BINDIR=$RUN/pgtest-prefix$BINDIR
    features pg_test
    rm -rf "$files"
    # Without link-time optimisation; the harness uses the profile, too.
    cargo pgrx package --profile harness "${FEATURES[@]}" --pg-config "$BINDIR/pg_config" --out-dir "$files" >"$log" 2>&1 || {
        cat "$log"
        return 1
    }
    mkdir -p "$RUN/pgtest-prefix"
    cp -a --parents "$prefix" "$RUN/pgtest-prefix/"
    cp -a "$files/." "$RUN/pgtest-prefix/"
    chmod -R a+rX "$RUN/pgtest-prefix"
}

run_pg_tests() {
    local name ok=0 bad=0 BINDIR=$PGTEST_BINDIR
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
