#!/usr/bin/env bash
# setup.sh [--check] build|package|debian|tests|docs: installs what is missing for a build, for a Debian
# package, for a bare Debian to try it in, or for the tests as well; for the documentation as a site alone.
# With --check it installs nothing and says what is missing. Quick when nothing is.
. "$(dirname "$0")/lib.sh"

pgrx_version=0.18.1
mdbook_version=0.4.52
check=
if [ "${1:-}" = --check ]; then check=yes && shift; fi
what=${1:-build}

build_packages() {
    local major
    # One that Debian has not installed is there as a whole.
    case $PG_CONFIG in
        /usr/lib/postgresql/*) major=${PG_CONFIG#/usr/lib/postgresql/} && major=${major%%/*} ;;
        "$ROOT"/target/*) major=$(default_major) ;;
    esac
    # libssl-dev: the demo is a client that can do TLS.
    echo ${major:+"postgresql-$major" "postgresql-server-dev-$major"} libpq-dev clang libclang-dev pkg-config gcc libc6-dev libssl-dev
}

# For tests of gateways, of clients in Lua and Go, of TLS, of figures and alerts, and of the report, which a browser opens.
test_packages() {
    local luajit=luajit
    # OpenResty's, which is the only one from Debian 13 on.
    [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" != bookworm ] || luajit=luajit2
    echo nginx libnginx-mod-http-lua pgbouncer "$luajit" luarocks python3-psycopg openssl \
        golang-go golang-github-jackc-pgx-v4-dev golang-github-cespare-xxhash-dev \
        prometheus prometheus-postgres-exporter prometheus-sql-exporter chromium
}

missing_packages() {
    local package packages
    packages=$(build_packages)
    case $what in
        # A site needs no server.
        docs) packages="gcc libc6-dev python3" ;;
        package) packages+=" dpkg-dev" ;;
        debian) packages+=" dpkg-dev debootstrap" ;;
        tests) packages+=" dpkg-dev $(test_packages)" ;;
    esac
    for package in $packages; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
    [ "$what" = tests ] || return 0
    # For the clients' tests; however they came to be here.
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "setup: only root may do this, and there is no sudo; as root: $*" >&2
        return 1
    fi
}

# Debian starts what it installs; tests start their own.
stop_services() {
    local package
    command -v systemctl >/dev/null || return 0
    for package in "$@"; do
        case $package in
            nginx | pgbouncer | prometheus*) as_root systemctl disable --now "$package" || true ;;
        esac
    done
}

# lacking WHAT HOW: what to do without this script, where it may not do it.
lacking() {
    echo "setup: $1" >&2
    case $what in
        build) echo "setup: run \`make setup\`, or: $2" >&2 ;;
        *) echo "setup: run \`scripts/setup.sh $what\`, or: $2" >&2 ;;
    esac
    exit 1
}

require_rust() {
    if ! command -v cargo >/dev/null; then
        echo "setup: Rust is missing; install 1.95 or newer, see https://rustup.rs" >&2
        exit 1
    fi
    # pgrx's build begins it, and ends where there is no such program; one that fails is enough, as in rustup's minimal profile.
    if ! command -v rustfmt >/dev/null; then
        echo "setup: rustfmt is missing, which comes with Rust from https://rustup.rs" >&2
        exit 1
    fi
}

# Nobody else needs it: it stays in target/.
install_mdbook() {
    require_rust
    if [ "$(target/tools/bin/mdbook --version 2>/dev/null)" = "mdbook v$mdbook_version" ]; then return; fi
    [ -z "$check" ] || lacking "mdBook $mdbook_version is missing" "cargo install mdbook --version $mdbook_version --locked --root target/tools"
    echo "setup: building mdBook $mdbook_version into target/tools (about 3 minutes on 2 cores)"
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install mdbook --version "$mdbook_version" --locked --force --debug --root target/tools
}

if command -v dpkg-query >/dev/null; then
    mapfile -t packages < <(missing_packages)
    if [ "${#packages[@]}" -gt 0 ]; then
        [ -z "$check" ] || lacking "Debian packages are missing: ${packages[*]}" "apt-get install ${packages[*]}"
        echo "setup: installing Debian packages: ${packages[*]}"
        as_root apt-get update -q
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}"
        stop_services "${packages[@]}"
    fi
elif [ -z "$check" ] && [ "$what" != docs ]; then
    echo "setup: not a Debian system; PostgreSQL with headers, libpq, clang and pkg-config must be there" >&2
fi

if [ "$what" = docs ]; then
    install_mdbook
    exit
fi
if [ -n "$PG" ] && [ -z "$check" ]; then fetch_installation "$PG"; fi
if [ ! -x "$PG_CONFIG" ]; then
    echo "setup: no pg_config at $PG_CONFIG; set PG_CONFIG to that of PostgreSQL 13 to 18" >&2
    exit 1
fi
require_rust
if [ "$what" = tests ] && { ! rustfmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; }; then
    [ -z "$check" ] || lacking "rustfmt or clippy is missing" "rustup component add rustfmt clippy"
    echo "setup: installing the Rust components rustfmt and clippy"
    rustup component add rustfmt clippy
fi
if [ "$(cargo pgrx --version 2>/dev/null)" != "cargo-pgrx $pgrx_version" ]; then
    [ -z "$check" ] || lacking "cargo-pgrx $pgrx_version is missing" "cargo install cargo-pgrx --version $pgrx_version --locked"
    echo "setup: installing cargo-pgrx $pgrx_version (about 2 minutes on 2 cores)"
    # Not optimized: to build it so takes longer than it will ever run.
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install cargo-pgrx --version "$pgrx_version" --locked --force --debug
fi
