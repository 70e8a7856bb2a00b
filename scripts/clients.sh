# Sourced by test.sh: the clients of applications against the published test vectors,
# each with the hash of its ecosystem.

clients_python() (
    set -e
    python3 -m venv "$RUN/venv"
    "$RUN/venv/bin/pip" -q --disable-pip-version-check install -r clients/python/requirements.txt
    PYTHONDONTWRITEBYTECODE=1 "$RUN/venv/bin/python" clients/python/test_vectors.py
)

clients_javascript() (
    set -e
    mkdir -p "$RUN/clients"
    cp -r clients/javascript clients/vectors.jsonl "$RUN/clients"
    cd "$RUN/clients/javascript"
    npm install --silent --no-audit --no-fund
    node test_vectors.js
)

clients_lua() (cd clients/lua && luajit test_vectors.lua && luajit test_keys.lua)

run_clients() {
    local status=0
    echo "== client in Rust"
    cargo test -q -p shardmaster-client --profile harness >"$LOGS/clients.log" 2>&1 || status=$?
    cat "$LOGS/clients.log"
    cargo_results "client in Rust" "$LOGS/clients.log" "$status"
    one "client in Python" clients_python
    one "client in JavaScript" clients_javascript
    one "client in Lua" clients_lua
}
