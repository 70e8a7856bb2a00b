//! Links the extension for `cargo pgrx`, which reads its SQL out of a section of the
//! library that no code refers to.
//!
//! cargo-pgrx says the same by RUSTFLAGS, and flags other than those of plain cargo commands
//! build every dependency a second time; the scripts turn that off.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SHARDMASTER_RPATH");
    if let Ok(path) = std::env::var("SHARDMASTER_RPATH") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,{path}");
    }
    let is_macos = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "macos");
    if std::env::var_os("CARGO_CFG_UNIX").is_some() && !is_macos {
        println!("cargo:rustc-link-arg-cdylib=-Wl,--no-gc-sections");
    }
}
