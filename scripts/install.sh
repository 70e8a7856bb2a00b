#!/usr/bin/env bash
# Copies the built extension from the private copy of PostgreSQL into the system's.
. "$(dirname "$0")/lib.sh"
find_bindir

libdir=$("$PG_CONFIG" --pkglibdir)
extdir=$("$PG_CONFIG" --sharedir)/extension
as_owner=()
if [ ! -w "$libdir" ] || [ ! -w "$extdir" ]; then
    echo "install: $libdir is not ours to write; using sudo"
    as_owner=(sudo)
fi
"${as_owner[@]}" install -m 755 "$("$BINDIR/pg_config" --pkglibdir)/shardmaster.so" "$libdir/"
"${as_owner[@]}" install -m 644 "$("$BINDIR/pg_config" --sharedir)"/extension/shardmaster{.control,--*.sql} "$extdir/"
cat <<TEXT
Installed into $libdir and $extdir.
Put into postgresql.conf, and restart the server:
    shared_preload_libraries = 'shardmaster'
    shardmaster.database = '<the database with the extension>'
TEXT
