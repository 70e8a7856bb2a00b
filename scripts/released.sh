# Sourced: what CREATE EXTENSION ran in versions that were released, for tests of the way from them.

# install_released: into the private copy of PostgreSQL alone; who installs the extension needs the
# scripts of updates, and nothing that makes an old catalog. Functions that the library does not have any
# more are another one there until the update; if it leaves them so, that is a difference.
install_released() {
    local extension library script symbols other
    extension=$("$BINDIR/pg_config" --sharedir)/extension
    library=$("$BINDIR/pg_config" --pkglibdir)/shardmaster.so
    symbols=$(nm -D --defined-only "$library" | awk '{ print $3 }')
    other=$(grep -m1 '^shard_.*_wrapper$' <<<"$symbols")
    for script in sql/released/*.sql; do
        awk -v other="$other" 'NR == FNR { known[$1] = 1; next }
            match($0, /MODULE_PATHNAME'\'', '\''[a-z0-9_]+/) {
                name = substr($0, RSTART + 19, RLENGTH - 19)
                if (!(name in known)) sub("'\''" name "'\''", "'\''" other "'\''")
            }
            { print }' - "$script" <<<"$symbols" >"$extension/${script##*/}"
        chmod a+r "$extension/${script##*/}"
    done
}
