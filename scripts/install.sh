#!/usr/bin/env bash
# Copies what `make` has built into the PostgreSQL of PG_CONFIG, or below DESTDIR, as a package's
# build wants it.
. "$(dirname "$0")/lib.sh"
find_version
files=$(built_files)
if [ ! -e "$files/shardmaster.so" ]; then
    echo "install: nothing is built for PostgreSQL $MAJOR; run \`make\` first" >&2
    exit 1
fi
libdir=${DESTDIR:-}$("$PG_CONFIG" --pkglibdir)
extdir=${DESTDIR:-}$("$PG_CONFIG" --sharedir)/extension
as_owner=()
if [ -n "${DESTDIR:-}" ]; then
    mkdir -p "$libdir" "$extdir"
elif [ ! -w "$libdir" ] || [ ! -w "$extdir" ]; then
    echo "install: $libdir is not ours to write; using sudo"
    as_owner=(sudo)
fi
"${as_owner[@]}" install -m 755 "$files/shardmaster.so" "$libdir/"
"${as_owner[@]}" install -m 644 "$files"/shardmaster{.control,--*.sql} "$extdir/"
[ -z "${DESTDIR:-}" ] || exit 0
cat <<TEXT
Installed into $libdir and $extdir.
Put into postgresql.conf, and restart the server:
    shared_preload_libraries = 'shardmaster'
    shardmaster.database = '<the database with the extension>'
TEXT
