# Sourced: building the programs of pgrx-tests and running them beside servers.

# build_harness: prints "NAME PATH" of the program with the library's own tests, which is `unit`,
# and for each file of tests, all of which are modules of one program.
build_harness() {
    local log=$ROOT/target/harness-build.log file name path
    cargo test -p shardmaster-tests --profile harness --no-run 2>&1 | tee "$log" >&2
    cargo build -q -p shardmaster-tests --profile harness --bins >&2
    sed -n 's,^ *Executable unittests src/lib.rs (\(.*\))$,unit \1,p' "$log"
    path=$(sed -n 's,^ *Executable tests/programs.rs (\(.*\))$,\1,p' "$log")
    for file in pgrx-tests/tests/*.rs; do
        name=$(basename "$file" .rs)
        [ "$name" != programs ] || continue
        if ! grep -qx "mod $name;" pgrx-tests/tests/programs.rs; then
            echo "$file is no module of pgrx-tests/tests/programs.rs" >&2
            return 1
        fi
        echo "$name $path"
    done
}

# The servers' user may not be able to read the checkout: it gets copies.
copy_programs() {
    mkdir -p "$RUN/bin"
    cp target/harness/demo target/harness/bench "$RUN/bin/"
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
    done <"$RUN/programs"
    chmod -R a+rX "$RUN/bin"
}

# tests_of NAME [ARGUMENT ...]: puts into the array `chosen` what makes the program run the tests
# of NAME alone, and of these, as in a program of their own, those that the arguments choose.
tests_of() {
    local name=$1 program=$RUN/bin/test-$1 filters=() skips=() exact= test filter
    chosen=()
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --exact) exact=yes ;;
            --skip) skips+=("${2-}") && shift ;;
            --test-threads | --color | --format | --logfile) chosen+=("$1" "${2-}") && shift ;;
            -*) chosen+=("$1") ;;
            *) filters+=("$1") ;;
        esac
        shift
    done
    # The library's own tests are in many modules.
    [ "$name" != unit ] || { chosen+=("${filters[@]}" "${skips[@]/#/--skip=}" ${exact:+--exact}); return; }
    [ "${#filters[@]}" -gt 0 ] || filters=("")
    chosen+=(--exact)
    while read -r test; do
        # The program would also take those of a file whose name ends with this one.
        case $test in "$name::"*) ;; *) continue ;; esac
        for filter in "${skips[@]}"; do
            case $test in *"$filter"*) continue 2 ;; esac
        done
        for filter in "${filters[@]}"; do
            case $exact:$test in
                yes:"$name::$filter" | :*"$filter"*) chosen+=("$test") && break ;;
            esac
        done
    done < <("$program" --list --format terse "$name::" | sed -n 's/: test$//p')
    # Nothing else than these, also if none of them is there.
    [ "${chosen[-1]}" != --exact ] || chosen+=("$name::")
}

# What only a server that was built with something shows: what it is, how `pg_config --configure` has it (!: has it not), and
# the tests.
with_what=(
    'TLS --with-(openssl|ssl=) ^(credentials::|keychain::|secrets::|endpoints::endpoints_and_credentials_are_changed_at_once$|client::(a_client_in_(go|javascript|python)_|a_router_speaks_tls|an_application_with_))'
    'XML --with-libxml ^(imports::conditions_find_|misplaced_tables::rows_arrive_as_they_are$|queries_types::values_come_as_they_are$|tables::every_type_arrives_)'
    'ICU !--without-icu ^ranges::keys_that_are_ordered_otherwise_'
)

# Takes out of the array `chosen` what the server under test cannot show, and says so: one from a package may lack some.
leave_out_lacking() {
    local name=$1 configured row what word tests test left kept
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
        [ "${kept[-1]}" != --exact ] || kept+=("$name::")
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

# beside_servers PROGRAM ...: runs it as the servers' user, told where things are. Servers of
# another version have a SERVERS_DIR of their own: one cluster there is a template for all.
beside_servers() {
    local files=()
    # Long runs have dozens of clusters at once, with their links and sessions in one process.
    [ -z "${SHARDMASTER_SOAK:-}" ] || files=(prlimit "--nofile=$(ulimit -Hn)")
    as_user "${files[@]}" env HOME="$RUN" SHARDMASTER_BINDIR="$BINDIR" SHARDMASTER_RUN_DIR="${SERVERS_DIR:-$RUN}" \
        SHARDMASTER_PROGRAMS="$RUN/bin" SHARDMASTER_MAJORS="$RUN/majors" SHARDMASTER_BUILT="$RUN/built" ${SMALL_DISK:+SHARDMASTER_SMALL_DISK="$SMALL_DISK"} \
        ${FULL_DISK:+SHARDMASTER_FULL_DISK="$FULL_DISK"} \
        ${MAY_LACK:+SHARDMASTER_MAY_LACK="$MAY_LACK"} "$@"
}
