#!/usr/bin/env bash
# Prints the bin directory of a private copy of the PostgreSQL installation, made
# on first use, into which tests install the extension: the system's own
# installation and other checkouts stay untouched. PostgreSQL finds its files
# relative to its programs. With PG=18: of the installation that was fetched. With --remove:
# removes the copies.
. "$(dirname "$0")/lib.sh"
prefix=${SHARDMASTER_PREFIX:-/tmp/shardmaster-$(id -u)-$(pwd | cksum | cut -d' ' -f1)}
all=("$prefix" "$prefix"-pg[1-9]*)
[ -z "$PG" ] || prefix+=-pg$PG
# Says that the directory is such a copy and may be removed; then, what it is of.
mark=$prefix/.private-copy

remove() {
    [ -e "$prefix" ] || return 0
    if [ ! -e "$mark" ] || [ ! -O "$prefix" ]; then
        echo "$prefix is in the way: not a private copy of PostgreSQL, or not ours" >&2
        exit 1
    fi
    rm -rf "$prefix"
}

if [ "${1:-}" = --remove ]; then
    for prefix in "${all[@]}"; do
        mark=$prefix/.private-copy
        remove
    done
    exit
fi
bindir=$("$PG_CONFIG" --bindir)
version="$("$PG_CONFIG" --version) from $bindir"
# An interrupted copy, or one of another version, is made again.
if [ ! -O "$prefix" ] || [ "$(cat "$mark" 2>/dev/null)" != "$version" ]; then
    remove
    mkdir "$prefix"
    touch "$mark"
    dirs=("${bindir%/bin}" "$("$PG_CONFIG" --sharedir)")
    # As a whole: its programs find libraries and headers relative to it.
    [ -z "$PG" ] || dirs=("$(installation "$PG")")
    for dir in "${dirs[@]}"; do
        mkdir -p "$prefix${dir%/*}"
        cp -a "$dir" "$prefix${dir%/*}/"
    done
    if [ -z "$PG" ]; then
        mkdir -p "$prefix/usr"
        ln -sfn "$("$PG_CONFIG" --includedir | sed 's,\(/include\).*,\1,')" "$prefix/usr/include"
    fi
    chmod -R a+rX "$prefix"
    echo "$version" >"$mark"
fi
echo "$prefix$bindir"
