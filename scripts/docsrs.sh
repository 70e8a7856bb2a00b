#!/bin/sh
# Cargo's RUSTC_WRAPPER of the type-checks: pgrx-pg-sys brings bindings of every
# PostgreSQL version for its documentation, and uses them where this is set. For that
# crate alone: others would take other paths, too.
case " $* " in
    *" --crate-name pgrx_pg_sys "*) exec "$@" --cfg docsrs ;;
    *) exec "$@" ;;
esac
