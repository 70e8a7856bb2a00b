#!/usr/bin/env bash
# mutations.sh [NAME ...]: makes the faults of tests/mutations, or the named ones, one after the other in a copy of
# the checkout as it is, and runs the tests there that have to find them. What was found is kept for the code as it
# is: a run can be ended, and the next one goes on.
#
# mutations.sh --check: whether each of them still fits the code. Builds nothing.
. "$(dirname "$0")/lib.sh"

if [ "${1:-}" = --check ]; then
    exec python3 scripts/mutations.py check
fi

FAULTS=$ROOT/tests/mutations
KEPT=$ROOT/target/mutations
TREE=$KEPT/tree
mkdir -p "$KEPT/logs"

# The names of all faults, or those that are given.
names_of() {
    local name file
    if [ $# -eq 0 ]; then
        for file in "$FAULTS"/*.txt; do basename "$file" .txt; done
        return
    fi
    for name in "$@"; do
        [ -e "$FAULTS/$name.txt" ] || { echo "tests/mutations has no fault $name" >&2; return 1; }
        echo "$name"
    done
}

# Sets CODE, a number for what git would commit of all files.
find_code() {
    CODE=$(export GIT_INDEX_FILE=$KEPT/index && git add -A . && git write-tree) || {
        echo "faults are made in a checkout of git alone" >&2
        return 1
    }
    RESULTS=$KEPT/results/$CODE
    mkdir -p "$RESULTS"
}

# Makes the copy what the checkout is, without any fault. It is a worktree of git: only files that differ are written,
# and cargo builds nothing else again. What it builds, and its copy of PostgreSQL, are its own: others must never run
# with a fault.
restore() {
    if [ ! -e "$TREE/.git" ]; then
        rm -rf "$TREE"
        git worktree prune
        git worktree add -q --detach --no-checkout "$TREE"
    fi
    git -C "$TREE" read-tree -u --reset "$CODE"
}

# run_tests LOG: the tests of the copy that are on the standard input, a suite and a test in each line.
run_tests() {
    local suite test suites=() tests=()
    while read -r suite test; do
        [[ " ${suites[*]} " == *" $suite "* ]] || suites+=("$suite")
        tests+=("$test")
    done
    env -u SHARDMASTER_KEEP -u SHARDMASTER_SOAK -u SHARDMASTER_INSTALLED -u SHARDMASTER_PREFIX -u SHARDMASTER_PGRX_HOME \
        SHARDMASTER_TEST_ARGS="--exact ${tests[*]}" "$TREE/scripts/test.sh" "${suites[@]}" >"$1" 2>&1 </dev/null || true
}

# has SUITE TEST WORD LOG: whether a test has ended like this, "ok" or "FAILED". PostgreSQL 15 writes "test NAME ...
# ok" of the psql suites, 16 "ok NUMBER - NAME". The pure tests name nothing but failures.
has() {
    local word=$3 failed
    case $1 in
        harness:*) grep -qE "^test ${1#harness:}::$2 \.\.\. $word( |$)" "$4" ;;
        pure)
            failed=$(grep -cxF -- "---- $2 stdout ----" "$4" || true)
            if [ "$word" = FAILED ]; then [ "$failed" -gt 0 ]; else [ "$failed" -eq 0 ] && grep -q '^test result: ok\.' "$4"; fi
            ;;
        *)
            [ "$word" = ok ] || word="not ok"
            grep -qE "^test $2 +\.\.\. $3( |$)|^$word [0-9]+ +[-+] $2( |$)" "$4"
            ;;
    esac
}

# Whether the tests were not run, since the copy could not be built.
is_not_built() { grep -qE 'could not compile|^failed: .*\bbuild \(1\)$' "$1"; }

# Without a fault the tests pass: else what fails would not show that a fault is found. It builds all as well, which
# takes as long as in a fresh clone for the first time.
require_passing() {
    local name suite test log=$KEPT/logs/without_a_fault.log passed=$RESULTS/passed bad=0
    touch "$passed"
    for name in "$@"; do
        [ -e "$RESULTS/$name" ] || python3 scripts/mutations.py found-by "$FAULTS/$name.txt"
    done | sort -u | grep -vxFf "$passed" >"$KEPT/wanted" || true
    [ -s "$KEPT/wanted" ] || return 0
    echo "without a fault: $(wc -l <"$KEPT/wanted") tests"
    restore
    run_tests "$log" <"$KEPT/wanted"
    while read -r suite test; do
        if has "$suite" "$test" ok "$log"; then
            echo "$suite $test" >>"$passed"
        else
            echo "fails without a fault: $suite $test"
            bad=1
        fi
    done <"$KEPT/wanted"
    [ "$bad" -eq 0 ] || { echo "see $log" >&2; return 1; }
}

# try NAME: makes a fault, and prints what became of it in one line.
try() {
    local name=$1 fault=$FAULTS/$1.txt log=$KEPT/logs/$1.log suite test by='' missed=''
    restore || return
    if ! python3 scripts/mutations.py apply "$fault" "$TREE" >"$log" 2>&1; then
        echo "does not apply: $name, see $log"
        return 1
    fi
    python3 scripts/mutations.py found-by "$fault" | run_tests "$log"
    restore || return
    if is_not_built "$log"; then
        echo "does not compile: $name, see $log"
        return 1
    fi
    while read -r suite test; do
        if has "$suite" "$test" FAILED "$log"; then by+=", $test"; else missed+=", $test"; fi
    done < <(python3 scripts/mutations.py found-by "$fault")
    if [ -n "$missed" ]; then
        echo "NOT FOUND $name by ${missed#, }, see $log"
        return 1
    fi
    echo "found $name by ${by#, }" | tee "$RESULTS/$name"
}

names=$(names_of "$@")
find_code
mapfile -t names <<<"$names"
require_passing "${names[@]}"
found=0 others=0
for name in "${names[@]}"; do
    if [ -e "$RESULTS/$name" ]; then
        cat "$RESULTS/$name"
        found=$((found + 1))
    elif try "$name"; then
        found=$((found + 1))
    else
        others=$((others + 1))
    fi
done
echo "$found found, $others not found"
[ "$others" -eq 0 ]
