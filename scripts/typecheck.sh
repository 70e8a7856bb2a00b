# Sourced by test.sh: the extension checked for every major version that Cargo.toml
# declares, none of whose headers need to be here. The dependencies are those of the builds,
# but for the bindings: an option that no build sets, and that means nothing to a check,
# keeps these apart.

typecheck() {
    DOCS_RS=1 RUSTC_WRAPPER=$ROOT/scripts/docsrs.sh \
        cargo clippy -q --profile harness --config profile.harness.package.pgrx-pg-sys.codegen-units=1 \
        --no-default-features --features "$1 pg_test" -- -D warnings
}

# run_typecheck [FEATURE ...]: all but these.
run_typecheck() {
    local feature
    for feature in $(sed -n 's/^\(pg[0-9][0-9]\) = .*/\1/p' Cargo.toml); do
        case " $* " in
            *" $feature "*) ;;
            *) one "type-check, $feature" typecheck "$feature" ;;
        esac
    done
}
