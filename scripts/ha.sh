#!/usr/bin/env bash
# Runs the tests of failovers by Patroni, and installs what they need where it is missing.
. "$(dirname "$0")/lib.sh"

missing=()
if command -v dpkg-query >/dev/null; then
    for package in patroni etcd-server python3-etcd python3-psycopg2; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
else
    echo "ha: not a Debian system; /usr/bin/patroni with its part for etcd 3, and /usr/bin/etcd must be there" >&2
fi

sudo_if_needed() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian starts what it installs, now and at each boot; tests start their own, and want no other
# beside it. This says no to the first, and masked units to the second.
policy=/usr/sbin/policy-rc.d

install_stopped() {
    local unit own_policy=
    for unit in etcd patroni; do
        sudo_if_needed ln -sfn /dev/null "/etc/systemd/system/$unit.service"
    done
    if [ ! -e "$policy" ]; then
        own_policy=yes
        printf '#!/bin/sh\nexit 101\n' | sudo_if_needed tee "$policy" >/dev/null
        sudo_if_needed chmod 755 "$policy"
    fi
    local status=0
    sudo_if_needed apt-get update -q
    sudo_if_needed env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" || status=$?
    if [ -n "$own_policy" ]; then sudo_if_needed rm "$policy"; fi
    return "$status"
}

if [ "${#missing[@]}" -gt 0 ]; then
    echo "ha: installing Debian packages: ${missing[*]}; their services stay masked (systemctl unmask etcd patroni)"
    install_stopped "${missing[@]}"
fi
exec scripts/test.sh harness:faults::patroni
