#!/usr/bin/env bash
# Prints a private copy of the PostgreSQL installation, made on first use, into
# which tests install the extension: the system's own installation and other
# checkouts stay untouched. PostgreSQL finds its files relative to its programs.
set -euo pipefail
cd "$(dirname "$0")/.."
pg_config=${PG_CONFIG:-pg_config}
prefix=${SHARDMASTER_PREFIX:-/tmp/shardmaster-$(id -u)-$(pwd | cksum | cut -d' ' -f1)}
bindir=$("$pg_config" --bindir)
if [ ! -x "$prefix$bindir/postgres" ]; then
    for dir in "${bindir%/bin}" "$("$pg_config" --sharedir)"; do
        mkdir -p "$prefix${dir%/*}"
        cp -a "$dir" "$prefix${dir%/*}/"
    done
    mkdir -p "$prefix/usr"
    ln -sfn "$("$pg_config" --includedir | sed 's,\(/include\).*,\1,')" "$prefix/usr/include"
    chmod 755 "$prefix"
fi
echo "$prefix$bindir"
