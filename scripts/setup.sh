#!/usr/bin/env bash
# Installs what a build needs and this machine lacks. Quick when nothing is missing.
. "$(dirname "$0")/lib.sh"

pgrx_version=0.18.1

sudo_if_needed() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing_packages() {
    local package
    # The second line: for tests of gateways, of a client in Lua, and of TLS.
    for package in postgresql-15 postgresql-server-dev-15 libpq-dev clang libclang-dev pkg-config gcc libc6-dev \
        nginx libnginx-mod-http-lua pgbouncer luajit2 python3-psycopg2 openssl libssl-dev; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
    # For the clients' tests; however they came to be here.
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
}

# Debian starts what it installs; tests start their own.
stop_services() {
    local package
    command -v systemctl >/dev/null || return 0
    for package in "$@"; do
        case $package in
            nginx | pgbouncer) sudo_if_needed systemctl disable --now "$package" || true ;;
        esac
    done
}

if command -v dpkg-query >/dev/null; then
    mapfile -t packages < <(missing_packages)
    if [ "${#packages[@]}" -gt 0 ]; then
        echo "setup: installing Debian packages: ${packages[*]}"
        sudo_if_needed apt-get update -q
        sudo_if_needed env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}"
        stop_services "${packages[@]}"
    fi
else
    echo "setup: not a Debian system; PostgreSQL 15 with headers, libpq, clang and pkg-config must be there" >&2
fi

if [ ! -x "$PG_CONFIG" ]; then
    echo "setup: no pg_config at $PG_CONFIG; set PG_CONFIG to that of PostgreSQL 15" >&2
    exit 1
fi
if ! command -v cargo >/dev/null; then
    echo "setup: Rust is missing; install 1.95 or newer, see https://rustup.rs" >&2
    exit 1
fi
if ! rustfmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    echo "setup: installing the Rust components rustfmt and clippy"
    rustup component add rustfmt clippy
fi
if [ "$(cargo pgrx --version 2>/dev/null)" != "cargo-pgrx $pgrx_version" ]; then
    echo "setup: installing cargo-pgrx $pgrx_version (about 2 minutes on 2 cores)"
    # Not optimized: to build it so takes longer than it will ever run.
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install cargo-pgrx --version "$pgrx_version" --locked --force --debug
fi
