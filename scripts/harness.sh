# Sourced: building the programs of pgrx-tests and running them beside servers.

# build_harness: prints "NAME PATH" for each test program and each binary.
build_harness() {
    local log=$ROOT/target/harness-build.log
    cargo test -p shardmaster-tests --profile harness --no-run 2>&1 | tee "$log" >&2
    cargo build -q -p shardmaster-tests --profile harness --bins >&2
    sed -n 's,^ *Executable \([^ ]*\) \([^ (][^ ]*\) *(\(.*\))$,\1 \2 \3,p; s,^ *Executable \(tests/[^ ]*\) (\(.*\))$,\1 - \2,p' "$log" |
        while read -r kind source path; do
            case $kind:$source in
                unittests:src/lib.rs) echo "unit $path" ;;
                unittests:*) ;; # programs have no tests of their own
                tests/*) source=${kind##*/}; echo "${source%.rs} $path" ;;
            esac
        done
}

# The servers' user may not be able to read the checkout: it gets copies.
copy_programs() {
    mkdir -p "$RUN/bin"
    cp target/harness/demo target/harness/bench "$RUN/bin/"
    cp clients/gateway/shardmaster_gateway.py clients/python/{router,test_router}.py "$RUN/bin/"
    chmod -R a+rX "$RUN/bin"
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
    as_user env HOME="$RUN" SHARDMASTER_BINDIR="$BINDIR" SHARDMASTER_RUN_DIR="${SERVERS_DIR:-$RUN}" \
        SHARDMASTER_PROGRAMS="$RUN/bin" SHARDMASTER_MAJORS="$RUN/majors" SHARDMASTER_BUILT="$RUN/built" ${SMALL_DISK:+SHARDMASTER_SMALL_DISK="$SMALL_DISK"} \
        ${FULL_DISK:+SHARDMASTER_FULL_DISK="$FULL_DISK"} \
        ${MAY_LACK:+SHARDMASTER_MAY_LACK="$MAY_LACK"} "$@"
}
