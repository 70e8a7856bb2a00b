#!/usr/bin/env bash
# Runs what tries faults and writes down what it has tried: docs/internals/reliability.md. Longer with
# SHARDMASTER_SOAK, SHARDMASTER_WALK_SECONDS; with failovers by Patroni where that is installed.
# What runs have tried is kept in docs/reliability.records, a line each, and the page counts all of it:
# ten hours come together from several runs. SHARDMASTER_RECORDS names a file of records that other
# runs of the same code have kept, by the same variable; SHARDMASTER_RECORDED=1 adds these alone.
. "$(dirname "$0")/lib.sh"

suites=(harness:faults::injection_points harness:faults::disasters harness:faults::walks harness:faults::histories harness:split::scopes)
if [ -x /usr/bin/patroni ]; then suites+=(harness:faults::patroni); fi
records=${SHARDMASTER_RECORDS:-}
if [ -z "$records" ]; then
    records=$(mktemp)
    trap 'rm -f "$records"' EXIT
    chmod 666 "$records"
fi
if [ -z "${SHARDMASTER_RECORDED:-}" ]; then
    SHARDMASTER_RECORDS=$records scripts/test.sh "${suites[@]}"
fi
kept=docs/reliability.records
sed "s/$/\tat=commit $(git rev-parse --short HEAD), $(date +%F)/" "$records" >>"$kept"
version=$("$(scripts/prefix.sh)/postgres" --version)
said="$(sed -n '1s/.*\tat=//p' "$kept") to $(sed -n '$s/.*\tat=//p' "$kept"), $version, $(nproc) processors"
cargo build -q -p shardmaster-tests --profile harness --bin reliability
target/harness/reliability "$said" <"$kept" >docs/internals/reliability.md
echo "docs/internals/reliability.md: $(wc -l <"$kept") records"
