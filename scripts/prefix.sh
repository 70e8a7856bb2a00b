#!/usr/bin/env bash
# Prints the bin directory of a private copy of the PostgreSQL installation, made
# on first use, into which tests install the extension: the system's own
# installation and other checkouts stay untouched. PostgreSQL finds its files
# relative to its programs. With --remove: removes the copy.
set -euo pipefail
cd "$(dirname "$0")/.."
pg_config=${PG_CONFIG:-pg_config}
prefix=${SHARDMASTER_PREFIX:-/tmp/shardmaster-$(id -u)-$(pwd | cksum | cut -d' ' -f1)}
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
    remove
    exit
fi
bindir=$("$pg_config" --bindir)
version="$("$pg_config" --version) from $bindir"
# An interrupted copy, or one of another version, is made again.
if [ ! -O "$prefix" ] || [ "$(cat "$mark" 2>/dev/null)" != "$version" ]; then
    remove
    mkdir "$prefix"
    touch "$mark"
    for dir in "${bindir%/bin}" "$("$pg_config" --sharedir)"; do
        mkdir -p "$prefix${dir%/*}"
        cp -a "$dir" "$prefix${dir%/*}/"
    done
    mkdir -p "$prefix/usr"
    ln -sfn "$("$pg_config" --includedir | sed 's,\(/include\).*,\1,')" "$prefix/usr/include"
    chmod 755 "$prefix"
    echo "$version" >"$mark"
fi
echo "$prefix$bindir"
