# Sourced by test.sh: jobs beside each other. Most of what a test does is to wait for servers.

# So many at a time, beside what the script itself does meanwhile: it builds.
JOBS=${SHARDMASTER_TEST_JOBS:-3}
declare -A running=()

passed=0
failed=0
failures=()

# Ticks that processors have passed, and the idle ones of these.
ticks() { awk '/^cpu / { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $5 + $6 }' /proc/stat 2>/dev/null || echo 0 0; }
ticks_before=$(ticks)

# The part of their time, in percent, that processors have had nothing to do since the start.
idle_share() { awk '{ all = $3 - $1; print (all > 0 ? int(100 * ($4 - $2) / all + 0.5) : "?") }' <<<"$ticks_before $(ticks)"; }

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
    if has_passed "$name"; then return; fi
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
    local pid name
    wait -n -p pid "${!running[@]}" || true
    name=${running[$pid]}
    unset "running[$pid]"
    cat "$RUN/jobs/$name.log"
    if [ ! -s "$RUN/jobs/$name.tally" ]; then
        tally "$name" 0 1
        return
    fi
    add_up "$RUN/jobs/$name.tally"
    # That one has its own way to go on.
    if [ -n "${KEPT:-}" ] && [[ "$name" != harness* ]] && ! grep -qv '^0' "$RUN/jobs/$name.tally"; then
        cp "$RUN/jobs/$name.tally" "$KEPT/$name.job"
    fi
}

# add_up FILE: what a job has counted.
add_up() {
    local bad ok what
    while IFS=$'\t' read -r bad ok what; do tally "$what" "$ok" "$bad"; done <"$1"
}

# keep_results: with SHARDMASTER_KEEP what passes is kept below target/kept, by the code as it is and by the tier, and is not
# run again: a run that takes hours can be ended, and goes on where it was.
keep_results() {
    local tree
    [ -n "${SHARDMASTER_KEEP:-}" ] || return 0
    tree=$(code_as_it_is) || { echo "results are kept for a checkout of git alone" >&2; exit 1; }
    KEPT=$ROOT/target/kept/$tree-${PG:-own}${SHARDMASTER_SOAK:+-long}
    mkdir -p "$KEPT"
    echo "== results are kept in $KEPT"
}

# A number for what git would commit of all files, whether they are committed or not.
code_as_it_is() {
    export GIT_INDEX_FILE=$RUN/index
    git add -A . && git write-tree
    local status=$?
    unset GIT_INDEX_FILE
    return "$status"
}

# has_passed NAME: whether it has in an earlier run of the same code, which is then counted.
has_passed() {
    [ -n "${KEPT:-}" ] && [ -e "$KEPT/$1.job" ] || return 1
    echo "-- $1: has passed in an earlier run of the same code"
    add_up "$KEPT/$1.job"
}

# running_named NAME: whether there is one of that name.
running_named() { printf '%s\n' "${running[@]}" | grep -qx "$1"; }

# await_named NAME: until it has ended, if there is one of that name.
await_named() {
    while running_named "$1"; do await_job; done
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
