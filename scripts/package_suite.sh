# Sourced by test.sh: the Debian package in a Debian that has nothing else. Only root can make one.

# in_debian PROGRAM ...
in_debian() { chroot "$DEBIAN" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

# bare_debian RELEASE: into $DEBIAN; no package may start a server there.
bare_debian() {
    local base=$ROOT/target/debian-$1.tar
    mkdir -p "$DEBIAN"
    if [ ! -e "$base" ]; then
        debootstrap --variant=minbase "$1" "$DEBIAN" "$(debian_archive)" &&
            tar -C "$DEBIAN" -cf "$base.part" . && mv "$base.part" "$base" || return 1
    else
        tar -C "$DEBIAN" -xf "$base" || return 1
    fi
    printf '#!/bin/sh\nexit 101\n' >"$DEBIAN/usr/sbin/policy-rc.d"
    chmod 755 "$DEBIAN/usr/sbin/policy-rc.d"
    cp /etc/apt/apt.conf "$DEBIAN/etc/apt/" 2>/dev/null || true
}

install_package() {
    cp "$1" "$DEBIAN/tmp/" && in_debian apt-get -q update &&
        in_debian apt-get -q -y --no-install-recommends install "/tmp/${1##*/}"
}

# Its cluster is the one that Debian has made, on a socket alone.
start_debian() {
    local conf=$DEBIAN/etc/postgresql/$MAJOR/main/conf.d/shardmaster.conf
    printf "%s\n" "listen_addresses = ''" "shared_preload_libraries = 'shardmaster'" \
        "shardmaster.database = 'app'" "max_worker_processes = 20" >"$conf" &&
        in_debian pg_ctlcluster "$MAJOR" main start &&
        in_debian runuser -u postgres -- createdb app
}

# What the package brought is away, and Debian's own is not.
removed_package() {
    local left
    in_debian apt-get -q -y purge "postgresql-$MAJOR-shardmaster" || return 1
    left=$(find "$DEBIAN/usr" -name '*shardmaster*')
    [ -z "$left" ] || { echo "left behind: $left"; return 1; }
    [ -e "$DEBIAN/usr/lib/postgresql/$MAJOR/lib/plpgsql.so" ]
}

all_is_well() {
    local said
    said=$(in_debian runuser -u postgres -- psql -X -At -d app -c "SELECT item, value FROM shard_status() WHERE NOT ok") || return 1
    [ -z "$said" ] || { echo "$said"; return 1; }
}

# The README's tour, by the Debian's own psql.
tour() (
    BINDIR=/usr/lib/postgresql/$MAJOR/bin
    as_user() { in_debian runuser -u postgres -- "$@"; }
    local blocks=$RUN/tour block
    mkdir -p "$blocks" "$DEBIAN$RUN"
    blocks README.md "$blocks"
    chmod -R a+rX "$blocks"
    cp -r "$blocks" "$DEBIAN$RUN/"
    for block in "$blocks"/*.sql; do run_block README.md "$block" /var/run/postgresql || exit 1; done
)

run_package() {
    local package release
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    DEBIAN=$RUN/debian
    one "make package" scripts/package.sh
    package=$(ls -t "target/packages/postgresql-$MAJOR-shardmaster_"*.deb | head -1)
    one "a bare Debian" bare_debian "$release"
    # Whatever follows happens within it.
    [ -x "$DEBIAN/usr/bin/apt-get" ] || return 0
    one "the package is installed" install_package "$package"
    one "its server starts" start_debian
    one "the tour of the README" tour
    one "shard_status is content" all_is_well
    # Without a /proc of its own pg_ctlcluster may not find the server that it has started.
    in_debian pg_ctlcluster "$MAJOR" main stop -m immediate ||
        kill -QUIT "$(head -1 "$DEBIAN/var/lib/postgresql/$MAJOR/main/postmaster.pid")" || true
    one "the package is removed" removed_package
}
