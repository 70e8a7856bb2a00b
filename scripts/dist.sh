#!/usr/bin/env bash
# Makes the source archive of the last commit, as PGXN takes it: target/shardmaster-VERSION.zip.
. "$(dirname "$0")/lib.sh"
name=shardmaster-$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
if [ -n "$(git status --porcelain)" ]; then echo "dist: what is not committed is left out" >&2; fi
mkdir -p target
git archive --format=zip --prefix="$name/" -o "target/$name.zip" HEAD
echo "target/$name.zip"
