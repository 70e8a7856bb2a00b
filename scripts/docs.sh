# Sourced by test.sh: the SQL blocks of the documentation, run as they stand.
#
# Each document has a throw-away server with an empty database `app`, and each of its
# blocks fenced as ```sql is one psql session there, in the order of the text.
#
#   -- raises SM001           the statement that follows raises this SQLSTATE; the
#                             errors of a block must be these, in this order
#   \! program "$BACKUP/f"    programs of PostgreSQL reach the same server; files go there
#   -- needs f(bigint)        the block is left out while there is no such function
#
# A block fenced as ```output behind it is what it prints: scripts/doc_output.py says how the two are compared.
# A block that a reader is not to run as it stands is fenced as ```text.

shopt -s nullglob globstar
DOCUMENTS=(README.md docs/**/*.md)
shopt -u nullglob globstar

# blocks DOCUMENT DIRECTORY: writes each block into a file named after its first line.
blocks() {
    awk -v dir="$2" '
        /^```sql$/ { inside = 1; name = sprintf("%s/%05d", dir, NR + 1); file = name ".sql"; printf "" > file; next }
        /^```output$/ { inside = 1; file = name ".out"; printf "" > file; next }
        /^```$/ { if (inside) close(file); inside = 0; next }
        inside { print > file }
    ' "$1"
    # As docs/operate/roles-and-rights.md says it of servers that do not know this right.
    [ "$MAJOR" -ge 15 ] ||
        find "$2" -name '*.sql' -exec \
            sed -i 's/^GRANT SET ON PARAMETER session_replication_role TO \([a-z_]*\);/ALTER ROLE \1 SUPERUSER;/' {} +
}

# run_block DOCUMENT FILE SOCKET: 2 if the block is left out.
run_block() {
    local line=${2##*/} wanted got status=0 function
    line=$((10#${line%.sql}))
    # What a block calls by \! comes to the same server, and keeps its files beside it.
    local sql=(as_user env PATH="$BINDIR:$PATH" PGHOST="$3" PGUSER=postgres BACKUP="$3" "$BINDIR/psql" -X -h "$3" -U postgres -d app)
    function=$(sed -n 's/^-- needs //p' "$2")
    if [ -n "$function" ] && [ -z "$("${sql[@]}" -At -c "SELECT to_regprocedure('$function')")" ]; then
        echo "block $1:$line ... left out: there is no $function yet"
        return 2
    fi
    "${sql[@]}" -v VERBOSITY=verbose -f "$2" >"$2.log" 2>&1 </dev/null || status=$?
    wanted=$(sed -n 's/^-- raises \([0-9A-Z]\{5\}\).*/\1/p' "$2")
    got=$(sed -n 's/^.*\(ERROR\|FATAL\): *\([0-9A-Z]\{5\}\): .*/\2/p' "$2.log")
    if [ "$status" -eq 0 ] && [ "$wanted" = "$got" ]; then
        if [ ! -e "${2%.sql}.out" ] || python3 scripts/doc_output.py "${2%.sql}.out" "$2.log"; then
            echo "block $1:$line ... ok"
            return 0
        fi
        echo "block $1:$line ... FAILED (prints something else than its document shows)"
        return 1
    fi
    echo "block $1:$line ... FAILED (psql ended with $status; expected errors: ${wanted:-none}; raised: ${got:-none})"
    cat "$2.log"
    return 1
}

# Every setting stands in the operator's table with its default.
check_settings() {
    local row missing=0
    while read -r row; do
        if ! grep -qF "$row" docs/reference/settings.md; then
            echo "docs/reference/settings.md lacks: $row"
            missing=1
        fi
    done < <(as_user "$BINDIR/psql" -X -At -h "$1" -U postgres -d app -c "
        SELECT format('| \`%s\` | %s', name, coalesce(nullif(boot_val, '') || coalesce(' ' || unit, ''), 'empty'))
          FROM pg_settings WHERE name LIKE 'shardmaster.%'")
    return "$missing"
}

# Every promise of docs/reference/security-*.md names a test that exists: [`folder::file::function`]
# of pgrx-tests/tests, or [`a/file`].
check_promises() {
    local promise file function named=0 missing=0
    while read -r promise; do
        named=$((named + 1))
        case $promise in
            *::*)
                file=${promise%::*} function=${promise##*::}
                file=pgrx-tests/tests/${file//:://}.rs
                if grep -A2 -xF '#[test]' "$file" 2>/dev/null | grep -qxF "fn $function() {"; then continue; fi
                ;;
            *) if [ -f "$promise" ]; then continue; fi ;;
        esac
        echo "docs/reference/security-*.md name a test that does not exist: $promise"
        missing=$((missing + 1))
    done < <(grep -oh '\[`[^`]*`\]' docs/reference/security-*.md | tr -d '[]`' | sort -u)
    [ "$missing" -eq 0 ] && [ "$named" -gt 20 ]
}

# docs/reference/functions.md is what a created extension says of itself; as it should be it is left in
# target/docs, from where `make accept` takes it.
check_functions() {
    mkdir -p target/docs
    as_user "$BINDIR/psql" -X -q -h "$1" -U postgres -d app -c 'CREATE EXTENSION IF NOT EXISTS shardmaster' &&
        as_user "$BINDIR/psql" -X -At -q -v ON_ERROR_STOP=1 -h "$1" -U postgres -d app \
            <scripts/functions.sql >target/docs/functions.md || return 1
    diff -u docs/reference/functions.md target/docs/functions.md || {
        echo "docs/reference/functions.md is not what the extension says: make accept takes target/docs/functions.md" && return 1
    }
}

# The pictures are those that the script makes, the lifecycle's of what the extension says.
check_pictures() {
    as_user "$BINDIR/psql" -X -At -h "$1" -U postgres -d app \
        -c "SELECT from_phase, to_phase, condition FROM shard_split_lifecycle() WHERE call IS NULL" |
        python3 scripts/pictures.py target/docs/pictures &&
        diff -r docs/pictures target/docs/pictures >/dev/null || {
        echo "docs/pictures are not what scripts/pictures.py makes: make accept takes target/docs/pictures" && return 1
    }
}

# Links between documents lead somewhere, and the site's table of contents to each page.
check_links() {
    python3 scripts/doc_links.py --summary docs/SUMMARY.md \
        README.md CHANGELOG.md clients/*.md clients/*/README.md $(find docs -name '*.md')
}

# counted COMMAND ...: one check more.
counted() {
    if "$@"; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
}

run_docs() {
    local document name block status ok=0 bad=0
    echo "== docs"
    counted check_promises
    counted check_links
    start_server doc-functions app
    counted check_functions "$RUN/doc-functions"
    counted check_pictures "$RUN/doc-functions"
    stop_server doc-functions
    for document in "${DOCUMENTS[@]}"; do
        name=${document%.md} name=doc-${name//\//-}
        mkdir -p "$RUN/$name.blocks"
        blocks "$document" "$RUN/$name.blocks"
        chmod -R a+rX "$RUN/$name.blocks"
        [ -n "$(ls "$RUN/$name.blocks")" ] || continue
        start_server "$name" app
        for block in "$RUN/$name.blocks"/*.sql; do
            run_block "$document" "$block" "$RUN/$name" && status=0 || status=$?
            case $status in 0) ok=$((ok + 1)) ;; 2) ;; *) bad=$((bad + 1)) ;; esac
        done
        if [ "$document" = docs/reference/settings.md ]; then
            counted check_settings "$RUN/$name"
        fi
        if [ "$bad" -gt 0 ]; then tail -n 40 "$RUN/$name/log"; fi
        stop_server "$name"
    done
    tally docs "$ok" "$bad"
}
