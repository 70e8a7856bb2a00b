#!/usr/bin/env bash
# Runs what tries faults and writes down what it has tried: docs/reliability.md. Longer with
# SHARDMASTER_SOAK, SHARDMASTER_WALK_SECONDS; with failovers by Patroni where that is installed.
# SHARDMASTER_RECORDS names a file of records that other runs of the same code have kept, by the
# same variable: these are counted, too.
. "$(dirname "$0")/lib.sh"

suites=(harness:faults harness:disasters harness:walks harness:histories harness:scopes)
if [ -x /usr/bin/patroni ]; then suites+=(harness:patroni); fi
records=${SHARDMASTER_RECORDS:-}
if [ -z "$records" ]; then
    records=$(mktemp)
    trap 'rm -f "$records"' EXIT
    chmod 666 "$records"
fi
SHARDMASTER_RECORDS=$records scripts/test.sh "${suites[@]}"
version=$("$(scripts/prefix.sh)/postgres" --version)
said="commit $(git rev-parse --short HEAD), $(date +%F), $version, $(nproc) processors"
cargo build -q -p shardmaster-tests --profile harness --bin reliability
target/harness/reliability "$said" <"$records" >docs/reliability.md
echo "docs/reliability.md: $(wc -l <"$records") records"
