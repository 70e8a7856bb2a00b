#!/usr/bin/env bash
# Builds the extension in the release profile and installs it into the private
# copy of PostgreSQL.
. "$(dirname "$0")/lib.sh"
find_bindir
init_pgrx
# SHARDMASTER_PROFILE=harness builds faster, for a developer's own loop.
cargo pgrx install --profile "${SHARDMASTER_PROFILE:-release}" --pg-config "$BINDIR/pg_config"
