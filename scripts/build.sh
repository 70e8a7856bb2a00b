#!/usr/bin/env bash
# Builds the extension in the release profile and installs it into the private
# copy of PostgreSQL. What `make install` takes is left in target/built.
. "$(dirname "$0")/lib.sh"
find_bindir
init_pgrx
features
find_rpath
# SHARDMASTER_PROFILE=harness builds faster, for a developer's own loop.
profile=${SHARDMASTER_PROFILE:-release}
# Scripts of other versions that are there were of another checkout, or of a test that was stopped.
rm -f "$("$BINDIR/pg_config" --sharedir)"/extension/shardmaster--*.sql
cargo pgrx install --profile "$profile" "${FEATURES[@]}" --pg-config "$BINDIR/pg_config"
files=$(built_files)
rm -rf "$files" && mkdir -p "$files"
cp "$("$BINDIR/pg_config" --pkglibdir)/shardmaster.so" \
    "$("$BINDIR/pg_config" --sharedir)"/extension/shardmaster{.control,--*.sql} "$files/"
