#!/usr/bin/env bash
# run.sh PROGRAM [ARGS]: runs a program of pgrx-tests beside throw-away servers.
. "$(dirname "$0")/lib.sh"
. scripts/harness.sh
find_bindir

program=$1
shift
cargo build -p shardmaster-tests --profile harness --bins
make_run_dir
copy_programs
beside_servers "$RUN/bin/$program" "$@"
if [ -d "$RUN/plots" ]; then
    mkdir -p docs/plots
    cp "$RUN"/plots/*.svg docs/plots/
fi
