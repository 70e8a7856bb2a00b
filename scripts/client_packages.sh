# Sourced: the packages of the clients, made as they would be published, and installed where tests find
# them. What a package needs stands in its own manifest alone.

CLIENTS=$ROOT/target/clients

# is_made NAME PATH ...: whether nothing below the paths is newer, nor what makes it of them.
is_made() {
    [ -e "$CLIENTS/$1.made" ] &&
        [ -z "$(find "${@:2}" scripts/client_packages.sh -newer "$CLIENTS/$1.made" -print -quit)" ]
}

# make_package NAME PATH ...: by NAME_package, in an empty directory, unless it is made. Each of these
# functions is a line of &&: whoever asks for the outcome switches `set -e` off.
make_package() {
    local to=$CLIENTS/$1
    is_made "$@" && return
    rm -rf "$to" "$to.made" && mkdir -p "$to" && "${1}_package" "$to" && touch "$to.made"
}

# A package is made without a warning.
quietly() {
    local said
    said=$("$@" 2>&1) || { printf '%s\n' "$said" >&2; return 1; }
    if grep -i 'warn' <<<"$said" >&2; then return 1; fi
}

pip_install() { "$1/bin/pip" -q --disable-pip-version-check install "${@:2}"; }

# What makes and checks the packages.
tools_package() {
    local typescript
    python3 -m venv "$1" && pip_install "$1" -r clients/python/requirements-dev.txt &&
        typescript=$(node -p 'require("./clients/javascript/package.json").devDependencies.typescript') &&
        npm install --silent --no-audit --no-fund --prefix "$1" "typescript@$typescript"
}

# dist/ has the package, installed/ all that a program needs, and the examples.
python_package() {
    # What setuptools writes beside a source is not to lie in the checkout. It warns where it may not compile.
    cp -r clients/python "$1/source" &&
        quietly env -u PYTHONDONTWRITEBYTECODE "$CLIENTS/tools/bin/python" -m build --no-isolation \
            --outdir "$1/dist" "$1/source" &&
        pip_install "$CLIENTS/tools" --target "$1/installed" "$(echo "$1"/dist/*.whl)[examples]"
}

# The package, and a folder that is empty but for node_modules.
javascript_package() {
    quietly npm pack --pack-destination "$1" ./clients/javascript && mkdir "$1/empty" &&
        (cd "$1/empty" && npm install --silent --no-audit --no-fund ../shardmaster-*.tgz)
}

# The rock, and tree/ with what is installed of it.
lua_package() {
    cp -r clients/lua "$1/source" && (
        cd "$1/source" && quietly luarocks --lua-version 5.1 lint ./*.rockspec &&
            quietly luarocks --lua-version 5.1 make --tree "$1/nothing" --pack-binary-rock ./*.rockspec &&
            quietly luarocks --lua-version 5.1 install --tree "$1/tree" ./*.rock
    )
}

# package/ is what is in the package, sample/ a program that depends on it: cargo need not build it here.
rust_package() {
    quietly cargo package -q -p shardmaster-client --allow-dirty --no-verify && mkdir "$1/package" &&
        tar -xzf target/package/shardmaster-client-*.crate -C "$1/package" --strip-components=1 &&
        cp -r clients/rust/sample "$1/" && cp Cargo.lock "$1/sample/"
}

# with_go PATH COMMAND ...: with the packages below the path and Debian's, and nothing that would have
# to be fetched.
with_go() {
    env GO111MODULE=off GOWORK=off GOFLAGS= GOPATH="$1:/usr/share/gocode" GOCACHE="$ROOT/target/go-cache" "${@:2}"
}

# The module where Go finds it, and bin/ with the examples, which tell of data races. The package for pgx 5
# differs from the one for pgx 4 in nothing but the version.
go_package() {
    local example file
    mkdir -p "$1/path/src" "$1/bin" && cp -r clients/go "$1/path/src/shardmaster" || return
    for file in config.go pgx4.go; do
        sed 's/pgx4/pgx5/g; s,/v4",/v5",; s/version 4/version 5/' "clients/go/pgx4/$file" |
            diff - "clients/go/pgx5/${file/4/5}" || return
    done
    for example in follow routes; do
        with_go "$1/path" go build -race -o "$1/bin/" "shardmaster/examples/$example" || return
    done
}

# What programs beside servers run.
client_packages() {
    make_package tools clients/python/requirements-dev.txt clients/javascript/package.json &&
        make_package python clients/python &&
        make_package javascript clients/javascript &&
        make_package go clients/go
}

# Each of them.
all_client_packages() {
    client_packages && make_package lua clients/lua && make_package rust clients/rust Cargo.lock
}
