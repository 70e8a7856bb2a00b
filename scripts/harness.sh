# Sourced: building the programs of pgrx-tests and running them beside servers.

# build_harness: prints "NAME PATH" of the program with the library's own tests, which is `unit`,
# and for each file of tests, all of which are modules of one program: FOLDER::FILE.
build_harness() {
    local log=$ROOT/target/harness-build.log tests=pgrx-tests/tests file name path
    cargo test -p shardmaster-tests --profile harness --no-run 2>&1 | tee "$log" >&2
    cargo build -q -p shardmaster-tests --profile harness --bins >&2
    sed -n 's,^ *Executable unittests src/lib.rs (\(.*\))$,unit \1,p' "$log"
    path=$(sed -n 's,^ *Executable tests/programs.rs (\(.*\))$,\1,p' "$log")
    for file in "$tests"/*.rs "$tests"/*/*.rs; do
        name=${file#"$tests/"} name=${name%.rs}
        case $name in programs | */mod) continue ;; esac
        # What is no module is not compiled, and nobody would miss it.
        if ! grep -qx "mod ${name%%/*};" "$tests/programs.rs" || ! grep -qx "mod ${name#*/};" "$tests/${name%%/*}/mod.rs" 2>/dev/null; then
            echo "$file is no module of a folder's mod.rs, or its folder none of $tests/programs.rs" >&2
            return 1
        fi
        echo "${name/\//::} $path"
    done
}

# By `make ha`, which installs what it needs.
by_itself=faults::patroni

# files_named NAME: the names in $RUN/programs that are meant: all of a folder, FOLDER::FILE, or a file alone, if no other
# folder has one of that name.
files_named() {
    local found
    found=$(awk -v name="$1" -v other="$by_itself" \
        '$1 == name || index($1, name "::") == 1 && $1 != other { print $1 }' "$RUN/programs")
    [ -n "$found" ] || found=$(awk -F '::| ' -v name="$1" 'NF == 3 && $2 == name { print $1 "::" $2 }' "$RUN/programs")
    case $found in
        '') echo "pgrx-tests/tests has no folder and no file $1" >&2; return 1 ;;
        *::"$1"$'\n'*) echo "pgrx-tests/tests has several files $1:" $found >&2; return 1 ;;
    esac
    echo "$found"
}

# The servers' user may not be able to read the checkout: it gets copies.
copy_programs() {
    mkdir -p "$RUN/bin"
    cp target/harness/demo target/harness/bench target/harness/runner "$RUN/bin/"
    chmod -R a+rX "$RUN/bin"
}

# What tests run of the clients that are not in Rust, beside what their packages were installed as.
copy_clients() {
    client_packages &&
        cp clients/gateway/shardmaster_gateway.py "$RUN/bin/" &&
        cp -r "$CLIENTS/python/installed" "$RUN/bin/python" &&
        cp clients/python/tests/follow*.py clients/python/examples/*.py "$RUN/bin/python/" &&
        cp -r "$CLIENTS/javascript/empty" "$RUN/bin/javascript" &&
        cp clients/javascript/test/follow.mjs "$RUN/bin/javascript/" &&
        cp -r "$CLIENTS/go/bin" "$RUN/bin/go" &&
        chmod -R a+rX "$RUN/bin"
}

# copy_tests: those that build_harness has listed in $RUN/programs.
copy_tests() {
    local name path
    while read -r name path; do
        [ -e "$RUN/bin/${path##*/}" ] || cp "$path" "$RUN/bin/"
        ln -s "${path##*/}" "$RUN/bin/test-$name"
        [ -e "$RUN/tests.all" ] || [ "$name" = unit ] || list_tests "$path"
    done <"$RUN/programs"
    chmod -R a+rX "$RUN/bin"
}

# tests_of NAME [ARGUMENT ...]: puts into the array `chosen` the tests of NAME, and of these, as in a program of their
# own, those that the arguments choose; other arguments into `flags`. Ignored ones are those of long runs.
tests_of() {
    local name=$1 filters=() skips=() exact= which=${SHARDMASTER_SOAK:+all} test filter
    chosen=() flags=()
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --exact) exact=yes ;;
            --ignored) which=ignored ;;
            --include-ignored) which=all ;;
            --skip) skips+=("${2-}") && shift ;;
            --test-threads | --color | --format | --logfile) flags+=("$1" "${2-}") && shift ;;
            -*) flags+=("$1") ;;
            *) filters+=("$1") ;;
        esac
        shift
    done
    [ "${#filters[@]}" -gt 0 ] || filters=("")
    while read -r test; do
        for filter in "${skips[@]}"; do
            case $test in *"$filter"*) continue 2 ;; esac
        done
        for filter in "${filters[@]}"; do
            case $exact:$test in
                yes:"$name::$filter" | :*"$filter"*) chosen+=("$test") && break ;;
            esac
        done
    done < <(grep "^$name::" "$RUN/tests.${which:-every}")
}

# list_tests PROGRAM: all tests of it, those that are ignored, and those that every run takes.
list_tests() {
    "$1" --list --format terse | sed -n 's/: test$//p' >"$RUN/tests.all" &&
        "$1" --list --format terse --ignored | sed -n 's/: test$//p' >"$RUN/tests.ignored" &&
        grep -vxFf "$RUN/tests.ignored" "$RUN/tests.all" >"$RUN/tests.every"
}

# plan NAME [LABEL]: the tests of one file of pgrx-tests, and what to call them, for the next run of the runner. Those of
# another version have a SERVERS_DIR of their own: one cluster there is a template for all.
plan() {
    local name=$1 label=${2:-$1} program=$RUN/bin/test-$1 chosen flags test environment=()
    echo "== pgrx-tests: $label"
    if [ ! -e "$program" ]; then
        tally "pgrx-tests: there is no file $name" 0 1
        return
    fi
    if [ -n "${SERVERS_DIR:-}" ]; then
        environment=(env "SHARDMASTER_BINDIR=$BINDIR" "SHARDMASTER_RUN_DIR=$SERVERS_DIR" "SHARDMASTER_MAY_LACK=$MAY_LACK")
        [ -z "${LD_LIBRARY_PATH:-}" ] || environment+=("LD_LIBRARY_PATH=$LD_LIBRARY_PATH")
        environment[0]=$(command -v env)
    fi
    # The library's own tests are in many modules, and quick.
    if [ "$name" = unit ]; then
        # shellcheck disable=SC2086
        planned unit "${environment[@]}" "$program" ${SHARDMASTER_TEST_ARGS:-}
        return
    fi
    # shellcheck disable=SC2086
    tests_of "$name" ${SHARDMASTER_TEST_ARGS:-}
    leave_out_lacking "$name"
    for test in "${chosen[@]}"; do
        planned "$label${test#"$name"}" "${environment[@]}" "$program" --include-ignored "${flags[@]}" --exact "$test"
    done
}

# planned NAME PROGRAM [ARGUMENT ...]: a line of the plan.
planned() { (IFS=$'\t' && echo "$*") >>"$RUN/plan"; }

# start_planned: a job for what has been planned since the last one.
start_planned() {
    local name=harness
    [ -s "$RUN/plan" ] || return 0
    [ ! -e "$RUN/plan.harness" ] || name=harness-more
    mv "$RUN/plan" "$RUN/plan.$name"
    beside "$name" run_planned "$name"
}

# run_planned NAME: what has been planned, longest first by what is kept of earlier runs. What passes is kept at once, also
# of a run that somebody ends.
run_planned() {
    local status=0 log=$LOGS/$1.log passed='s/^test \(.*\) \.\.\. ok (\([0-9.]*\) s, \([0-9.]*\) s of a processor)$/\1\t\2\t\3/p'
    local kept=${KEPT:-$RUN/kept}/$1
    mkdir -p "${kept%/*}" && touch "$kept" target/test-times
    sed -n "$passed" "$kept" >"$RUN/passed.$1"
    cat tests/times target/test-times >"$RUN/times.$1"
    beside_servers env SHARDMASTER_PASSED="$RUN/passed.$1" "$RUN/bin/runner" "$RUN/plan.$1" "$RUN/times.$1" 2>&1 </dev/null |
        tee -a "$kept" >"$log" || status=$?
    cat "$log"
    # The last time of each counts, and no more is kept.
    sed -n "$passed" "$log" | awk -F '\t' '{ line[$1] = $0 } END { for (name in line) print line[name] }' target/test-times - |
        sort >"$RUN/times.$1" && cp "$RUN/times.$1" target/test-times
    cargo_results "pgrx-tests" "$log" "$status"
}

# What only a server that was built with something shows: what it is, how `pg_config --configure` has it (!: has it not), and
# the tests.
with_what=(
    'TLS --with-(openssl|ssl=) ^(security::(credentials|keychain|secrets)::|routing::endpoints::endpoints_and_credentials_are_changed_at_once$|routing::client::(a_client_in_(go|javascript|python)_|a_router_speaks_tls|an_application_with_))'
    'XML --with-libxml ^(queries::imports::conditions_find_|misplaced::tables::rows_arrive_as_they_are$|queries::values::values_come_as_they_are$|ddl::truncate::every_type_arrives_)'
    'ICU !--without-icu ^split::verify_ranges::keys_that_are_ordered_otherwise_'
)

# Takes out of the array `chosen` what the server under test cannot show, and says so: one from a package may lack some.
leave_out_lacking() {
    local configured row what word tests test left kept
    [ -n "${MAY_LACK:-}" ] || return 0
    configured=$("$BINDIR/pg_config" --configure)
    for row in "${with_what[@]}"; do
        read -r what word tests <<<"$row"
        case $word in
            !*) grep -qE -- "${word#!}" <<<"$configured" || continue ;;
            *) if grep -qE -- "$word" <<<"$configured"; then continue; fi ;;
        esac
        left=() kept=()
        for test in "${chosen[@]}"; do
            if [[ $test =~ $tests ]]; then left+=("$test"); else kept+=("$test"); fi
        done
        [ "${#left[@]}" -gt 0 ] || continue
        echo "left out, as this server was built without $what: ${left[*]}"
        chosen=("${kept[@]}")
    done
}

# A file system that is soon full. Only root can have one.
mount_small_disk() {
    [ "$(id -u)" -eq 0 ] || return 0
    mkdir -p "$RUN/small-disk"
    mount -t tmpfs -o "size=32m,mode=0700,uid=$(id -u "$SERVER_USER")" tmpfs "$RUN/small-disk" || return 0
    mkdir "$RUN/small-disk/space"
    chown "$SERVER_USER" "$RUN/small-disk/space"
    SMALL_DISK=$RUN/small-disk/space
    mkdir -p "$RUN/full-disk"
    mount -t tmpfs -o "size=96m,mode=0700,uid=$(id -u "$SERVER_USER")" tmpfs "$RUN/full-disk" || return 0
    FULL_DISK=$RUN/full-disk
}

# beside_servers PROGRAM ...: runs it as the servers' user, told where things are.
beside_servers() {
    local files=()
    # Long runs have dozens of clusters at once, with their links and sessions in one process.
    [ -z "${SHARDMASTER_SOAK:-}" ] || files=(prlimit "--nofile=$(ulimit -Hn)")
    as_user "${files[@]}" env HOME="$RUN" SHARDMASTER_BINDIR="$BINDIR" SHARDMASTER_RUN_DIR="$RUN" \
        SHARDMASTER_PROGRAMS="$RUN/bin" SHARDMASTER_MAJORS="$RUN/majors" SHARDMASTER_BUILT="$RUN/built" ${SMALL_DISK:+SHARDMASTER_SMALL_DISK="$SMALL_DISK"} \
        ${FULL_DISK:+SHARDMASTER_FULL_DISK="$FULL_DISK"} \
        ${MAY_LACK:+SHARDMASTER_MAY_LACK="$MAY_LACK"} "$@"
}
