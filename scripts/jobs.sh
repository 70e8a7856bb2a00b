# Sourced by test.sh: jobs beside each other. Most of what a test does is to wait for servers.

# So many at a time, beside what the script itself does meanwhile: it builds.
JOBS=${SHARDMASTER_TEST_JOBS:-3}
declare -A running=()

passed=0
failed=0
failures=()

# tally NAME PASSED FAILED: counts, and of a job once it has ended.
tally() {
    if [ -n "${TALLY:-}" ]; then
        printf '%s\t%s\t%s\n' "$3" "$2" "$1" >>"$TALLY"
        return
    fi
    passed=$((passed + $2))
    failed=$((failed + $3))
    [ "$3" -eq 0 ] || failures+=("$1 ($3)")
}

# beside NAME COMMAND ...: starts a job as soon as there is room for it. What it says is
# shown when it has ended.
beside() {
    local name=$1
    shift
    while [ "${#running[@]}" -ge "$JOBS" ]; do await_job; done
    mkdir -p "$RUN/jobs"
    (
        TALLY=$RUN/jobs/$name.tally
        TIMEFORMAT="-- $name: %0R s, %0U s + %0S s of a processor"
        time "$@"
    ) >"$RUN/jobs/$name.log" 2>&1 </dev/null &
    running[$!]=$name
}

# await_job: until one of them has ended, and what came of it. One that has counted nothing
# counts as one failure.
await_job() {
    local pid name ok bad what
    wait -n -p pid "${!running[@]}" || true
    name=${running[$pid]}
    unset "running[$pid]"
    cat "$RUN/jobs/$name.log"
    if [ ! -s "$RUN/jobs/$name.tally" ]; then
        tally "$name" 0 1
        return
    fi
    while IFS=$'\t' read -r bad ok what; do tally "$what" "$ok" "$bad"; done <"$RUN/jobs/$name.tally"
}

# await_servers: until none is left that has servers.
await_servers() {
    while printf '%s\n' "${running[@]}" | grep -qvxE 'model|clients|'; do await_job; done
}

# await_named NAME: until it has ended, if there is one of that name.
await_named() {
    while printf '%s\n' "${running[@]}" | grep -qx "$1"; do await_job; done
}

await_jobs() {
    while [ "${#running[@]}" -gt 0 ]; do await_job; done
}

# end_jobs: for a script that ends early. They do not hear what a terminal tells the script.
end_jobs() {
    local pid
    for pid in "${!running[@]}"; do
        # The program that it waits for, too; that one ends what it has started.
        kill "$pid" $(cat "/proc/$pid/task/$pid/children") 2>/dev/null || true
    done
    running=()
}
