# Sourced by test.sh: the clients' packages, each installed where nothing else is, against the published
# vectors, with the hash of its ecosystem.

clients_rust() {
    cp -r "$CLIENTS/rust" "$RUN/client-rust" &&
        CARGO_TARGET_DIR=$ROOT/target cargo run -q --manifest-path "$RUN/client-rust/sample/Cargo.toml" \
            --profile harness -- "$ROOT/clients"
}

clients_python() {
    python3 -m venv "$RUN/venv" && pip_install "$RUN/venv" "$CLIENTS"/python/dist/*.whl &&
        PYTHONDONTWRITEBYTECODE=1 "$RUN/venv/bin/python" clients/python/tests/vectors.py clients
}

# Of the package as it is installed, and of itself.
clients_python_types() {
    local mypy=("$CLIENTS/tools/bin/mypy" --strict --cache-dir "$RUN/mypy" --python-executable "$RUN/venv/bin/python")
    "${mypy[@]}" clients/python/tests/types_seen.py && "${mypy[@]}" clients/python/src/shardmaster
}

clients_javascript() {
    cp -r "$CLIENTS/javascript/empty" "$RUN/client-javascript" &&
        cp clients/javascript/test/* "$RUN/client-javascript/" &&
        node "$RUN/client-javascript/vectors.mjs" clients
}

clients_javascript_types() { "$CLIENTS/tools/node_modules/.bin/tsc" -p "$RUN/client-javascript/tsconfig.json"; }

clients_lua() {
    export LUA_PATH="$CLIENTS/lua/tree/share/lua/5.1/?.lua"
    luajit clients/lua/tests/vectors.lua clients && luajit clients/lua/tests/keys.lua
}

# With Debian's pgx, which is version 4.
clients_go() {
    local here=$CLIENTS/go/path said
    said=$(gofmt -l clients/go) && [ -z "$said" ] || { echo "not as gofmt writes it: $said"; return 1; }
    with_go "$here" go vet shardmaster shardmaster/pgx4 shardmaster/examples/... &&
        with_go "$here" env SHARDMASTER_VECTORS="$ROOT/clients" go test -count=1 -race shardmaster &&
        clients_go_manifest
}

# go.mod names each module that is imported. Nothing else reads it here: Debian's are where they are.
clients_go_manifest() {
    local path
    while read -r path; do
        grep -q "^	${path//./\\.} v" clients/go/go.mod || { echo "go.mod lacks $path"; return 1; }
    done < <(find clients/go -name '*.go' -exec sed -n 's,^\t"\([a-z0-9]*\.[^"]*\)"$,\1,p' {} + | sort -u)
}

# Each package brings the licence along.
clients_licences() {
    local package
    for package in rust python javascript go lua; do cmp LICENSE "clients/$package/LICENSE" || return 1; done
}

# The unit of the gateway's script, which is where it would have been installed from. systemd says of
# what it does not understand that it ignores it, and ends well.
clients_unit() {
    local unit=shardmaster-gateway@ said
    sed "s,/usr/local/bin/,$ROOT/clients/gateway/," "clients/gateway/$unit.service" >"$RUN/$unit.service" &&
        said=$(systemd-analyze verify "$RUN/${unit}tenants.service" 2>&1) || { echo "$said"; return 1; }
    ! grep "$unit" <<<"$said"
}

run_clients() {
    local status=0
    echo "== client in Rust"
    cargo test -q -p shardmaster-client --profile harness >"$LOGS/clients.log" 2>&1 || status=$?
    cat "$LOGS/clients.log"
    cargo_results "client in Rust" "$LOGS/clients.log" "$status"
    one "package in Rust" clients_rust
    one "package in Python" clients_python
    one "types in Python" clients_python_types
    one "package in JavaScript" clients_javascript
    one "types in JavaScript" clients_javascript_types
    one "package in Go" clients_go
    one "package in Lua" clients_lua
    one "licences of the clients" clients_licences
    if command -v systemd-analyze >/dev/null; then one "unit of the gateway's script" clients_unit; fi
}
