# Sourced by test.sh: the protocol as a model, checked exhaustively (docs/internals/model.md). It needs a
# processor and no server, so its programs run beside what waits for servers.

build_model() {
    cargo test -p shardmaster-model --profile harness --test properties --test rules --no-run 2>&1 | tee "$LOGS/model-build.log" >&2
    sed -n 's,^ *Executable tests/[^ ]* (\(.*\))$,\1,p' "$LOGS/model-build.log" >"$RUN/model-programs"
    [ -s "$RUN/model-programs" ]
}

run_model() {
    local program status=0
    echo "== model"
    while read -r -u 9 program; do
        nice "$program" --nocapture --test-threads 1 >>"$LOGS/model.log" 2>&1 </dev/null || status=$?
    done 9<"$RUN/model-programs"
    # The ways into states that must not be are in the log.
    grep -E '^(test |test result)' "$LOGS/model.log" | sed 's/ actions: .*/ actions/; s/Bounds {.*}: //' || true
    cargo_results model "$LOGS/model.log" "$status"
}
