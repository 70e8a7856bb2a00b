# Sourced by test.sh: the extension checked for every major version that Cargo.toml
# declares, none of whose headers need to be here. In a target directory of its own: a
# build with headers would be made anew.

typecheck() {
    DOCS_RS=1 RUSTC_WRAPPER=$ROOT/scripts/docsrs.sh CARGO_TARGET_DIR=$ROOT/target/typecheck \
        cargo clippy -q --no-default-features --features "$1 pg_test" -- -D warnings
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
