#!/usr/bin/env bash
# Prints the bin directory of a private copy of the PostgreSQL installation, made
# on first use, into which tests install the extension: the system's own
# installation and other checkouts stay untouched. PostgreSQL finds its files
# relative to its programs. With --where: only the path of the copy.
set -euo pipefail
cd "$(dirname "$0")/.."
pg_config=${PG_CONFIG:-pg_config}
prefix=${SHARDMASTER_PREFIX:-/tmp/shardmaster-$(id -u)-$(pwd | cksum | cut -d' ' -f1)}
if [ "${1:-}" = --where ]; then
    echo "$prefix"
    exit
fi
bindir=$("$pg_config" --bindir)
if [ ! -e "$prefix/.complete" ]; then
    for dir in "${bindir%/bin}" "$("$pg_config" --sharedir)"; do
        mkdir -p "$prefix${dir%/*}"
        cp -a "$dir" "$prefix${dir%/*}/"
    done
    mkdir -p "$prefix/usr"
    ln -sfn "$("$pg_config" --includedir | sed 's,\(/include\).*,\1,')" "$prefix/usr/include"
    chmod 755 "$prefix"
    touch "$prefix/.complete" # an interrupted copy is made again
fi
echo "$prefix$bindir"
