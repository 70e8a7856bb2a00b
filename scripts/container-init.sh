#!/bin/sh
# Run by the image's entrypoint in a new cluster: the extension in POSTGRES_DB, and that database
# as the one that the workers serve.
set -eu
psql -X -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -v database="$POSTGRES_DB" <<'SQL'
ALTER SYSTEM SET shardmaster.database = :'database';
CREATE EXTENSION shardmaster;
SQL
