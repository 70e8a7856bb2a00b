# Sourced by test.sh: ALTER EXTENSION shardmaster UPDATE. What it comes to has to be what a fresh
# CREATE EXTENSION makes: functions, columns, comments, rights, what is dumped.
#
# sql/released/shardmaster--FROM.sql is what CREATE EXTENSION ran in a version that was released. It is
# created once more (scripts/released.sh), and taken to this one by sql/shardmaster--FROM--TO.sql.
#
# Whether the comparison sees what an update leaves out is tried by a version that nobody has released:
# as this one is, and with one thing of each kind that is otherwise. Its scripts lie in the private copy of
# PostgreSQL meanwhile; no other job asks which versions there are.

# What was otherwise in it, and what an update does about that.
OTHERWISE=(
    "CREATE FUNCTION shard_was() RETURNS int LANGUAGE sql AS 'SELECT 1'|DROP FUNCTION shard_was()"
    "CREATE VIEW shardmaster.was_asked AS SELECT 1 AS one|DROP VIEW shardmaster.was_asked"
    "ALTER TABLE shardmaster.shard ADD COLUMN was int|ALTER TABLE shardmaster.shard DROP COLUMN was"
    "ALTER TABLE shardmaster.shard ADD CONSTRAINT was CHECK (true)|ALTER TABLE shardmaster.shard DROP CONSTRAINT was"
    "CREATE INDEX was_found ON shardmaster.shard (shard_key)|DROP INDEX shardmaster.was_found"
    "COMMENT ON CONSTRAINT shard_pkey ON shardmaster.shard IS 'was'|COMMENT ON CONSTRAINT shard_pkey ON shardmaster.shard IS NULL"
    "GRANT EXECUTE ON FUNCTION shard_drop(text) TO PUBLIC|REVOKE EXECUTE ON FUNCTION shard_drop(text) FROM PUBLIC"
    "ALTER FUNCTION shard_drop(text) SECURITY INVOKER|ALTER FUNCTION shard_drop(text) SECURITY DEFINER"
    "SELECT pg_extension_config_dump('shardmaster.shard', 'WHERE false')|SELECT pg_extension_config_dump('shardmaster.shard', '')"
)
NOBODYS=0.0.0

update_sql() { as_user "$BINDIR/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$RUN/updates" -U postgres -d "$@"; }

# catalog_of DATABASE: what is there of the extension.
catalog_of() { update_sql "$1" <scripts/extension_catalog.sql; }

# updated FROM: a database with the extension in this version, come from that one.
updated() {
    as_user "$BINDIR/dropdb" --if-exists -h "$RUN/updates" -U postgres updated &&
        as_user "$BINDIR/createdb" -h "$RUN/updates" -U postgres updated &&
        update_sql updated -c "CREATE EXTENSION shardmaster VERSION '$1'" -c "ALTER EXTENSION shardmaster UPDATE" &&
        catalog_of updated
}

# nobodys_version [LEFT_OUT]: scripts of that version, and of an update that forgets one thing.
nobodys_version() {
    local number
    cp "$extension/shardmaster--$version.sql" "$extension/shardmaster--$NOBODYS.sql"
    : >"$extension/shardmaster--$NOBODYS--$version.sql"
    for number in "${!OTHERWISE[@]}"; do
        echo "${OTHERWISE[$number]%%|*};" >>"$extension/shardmaster--$NOBODYS.sql"
        [ "$number" = "${1:-}" ] || echo "${OTHERWISE[$number]#*|};" >>"$extension/shardmaster--$NOBODYS--$version.sql"
    done
    chmod a+r "$extension"/shardmaster--*.sql
}

comparison_sees_all() {
    local number found
    nobodys_version
    found=$(updated "$NOBODYS") && diff -u <(echo "$fresh") - <<<"$found" || return 1
    for number in "${!OTHERWISE[@]}"; do
        nobodys_version "$number"
        found=$(updated "$NOBODYS") || return 1
        if [ "$found" = "$fresh" ]; then
            echo "it has not been seen that an update lacks: ${OTHERWISE[$number]#*|}" && return 1
        fi
    done
}

# released_version VERSION
released_version() { updated "$1" | diff -u <(echo "$fresh") -; }

run_updates() {
    local extension version fresh script
    extension=$("$BINDIR/pg_config" --sharedir)/extension
    version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$extension/shardmaster.control")
    nobodys=("$extension/shardmaster--$NOBODYS.sql" "$extension/shardmaster--$NOBODYS--$version.sql")
    trap 'rm -f "${nobodys[@]}"' EXIT
    start_server updates app
    update_sql app -c 'CREATE EXTENSION shardmaster'
    fresh=$(catalog_of app)
    one "an update that is compared with a fresh extension" comparison_sees_all
    for script in sql/released/*.sql; do
        script=${script##*--}
        one "the update from ${script%.sql}" released_version "${script%.sql}"
    done
    stop_server updates
}
