//! The version is in several places, which have to agree, and each released version needs a path to this one: `ALTER
//! EXTENSION shardmaster UPDATE` follows the scripts `sql/shardmaster--FROM--TO.sql`, which are installed with the
//! extension.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Returns the version in a package's manifest.
fn of_manifest(file: &str) -> String {
    let text = read(file);
    let line = text.lines().find(|line| line.starts_with("version = ")).unwrap();
    line.trim_start_matches("version = ").trim_matches('"').to_owned()
}

fn of_json(file: &str, pointer: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(&read(file)).unwrap();
    json.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

/// Returns the headings of the changelog, newest first: the version, and whether it was released.
fn changelog() -> Vec<(String, bool)> {
    let heading = |line: &str| {
        let (version, when) = line.strip_prefix("## ")?.split_once(" (")?;
        Some((version.to_owned(), when != "unreleased)"))
    };
    read("CHANGELOG.md").lines().filter_map(heading).collect()
}

/// Returns the versions that the existing scripts can reach from `of`.
fn reached(of: &str, scripts: &[(String, String)]) -> BTreeSet<String> {
    let mut reached = BTreeSet::from([of.to_owned()]);
    loop {
        let step = scripts.iter().find(|(from, to)| reached.contains(from) && !reached.contains(to));
        match step {
            Some((_, to)) => reached.insert(to.clone()),
            None => return reached,
        };
    }
}

fn scripts() -> Vec<(String, String)> {
    let names = std::fs::read_dir(root().join("sql")).unwrap();
    let script = |name: String| {
        let (from, to) = name.strip_prefix("shardmaster--")?.strip_suffix(".sql")?.split_once("--")?;
        Some((from.to_owned(), to.to_owned()))
    };
    names.filter_map(|entry| script(entry.unwrap().file_name().into_string().unwrap())).collect()
}

#[test]
fn every_place_says_the_same_version() {
    let manifests = [
        "Cargo.toml",
        "pgrx-tests/Cargo.toml",
        "pgrx-tests/model/Cargo.toml",
        "clients/rust/Cargo.toml",
        "clients/python/pyproject.toml",
    ];
    let mut said: Vec<(String, String)> =
        manifests.map(|file| (file.to_owned(), of_manifest(file))).into_iter().collect();
    for (file, pointer) in [
        ("META.json", "/version"),
        ("META.json", "/provides/shardmaster/version"),
        ("clients/javascript/package.json", "/version"),
    ] {
        said.push((format!("{file} {pointer}"), of_json(file, pointer)));
    }
    // The name of a rock's file contains the version too, followed by a number of the rock's own.
    let rock = format!("clients/lua/shardmaster-{VERSION}-1.rockspec");
    said.push((rock.clone(), of_manifest(&rock).trim_end_matches("-1").to_owned()));
    assert!(
        read(&rock).contains(&format!("url = \"file://shardmaster-{VERSION}.zip\"")),
        "{rock}: the source's address"
    );
    said.push(("CHANGELOG.md".to_owned(), changelog().swap_remove(0).0));
    let lock = read("Cargo.lock");
    for package in lock.split("[[package]]").filter(|text| text.contains("name = \"shardmaster")) {
        let line = package.lines().find(|line| line.starts_with("version = ")).unwrap();
        said.push((
            "Cargo.lock".to_owned(),
            line.trim_start_matches("version = ").trim_matches('"').to_owned(),
        ));
    }
    assert!(read("shardmaster.control").contains("default_version = '@CARGO_VERSION@'"));
    let others: Vec<_> = said.iter().filter(|(_, version)| version != VERSION).collect();
    assert!(others.is_empty(), "not {VERSION}: {others:?}");
}

/// Cargo has a feature for each version of PostgreSQL, and META.json requires the oldest of them.
#[test]
fn the_oldest_postgresql_is_the_one_that_is_asked_for() {
    let manifest = read("Cargo.toml");
    let feature = |line: &str| line.strip_prefix("pg")?.split_once(" = ")?.0.parse::<u32>().ok();
    let oldest = manifest.lines().filter_map(feature).min().unwrap();
    assert_eq!(of_json("META.json", "/prereqs/runtime/requires/PostgreSQL"), format!("{oldest}.0.0"));
}

#[test]
fn every_release_can_be_upgraded() {
    let (scripts, changelog) = (scripts(), changelog());
    let is_stuck = |(version, is_released): &&(String, bool)| {
        *is_released && version != VERSION && !reached(version, &scripts).contains(VERSION)
    };
    let stuck: Vec<_> = changelog.iter().filter(is_stuck).collect();
    assert!(stuck.is_empty(), "no sql/shardmaster--FROM--TO.sql leads from {stuck:?} to {VERSION}");
}

/// Tests of the update start from these scripts.
#[test]
fn every_release_has_its_script() {
    let script = |version: &str| root().join(format!("sql/released/shardmaster--{version}.sql"));
    let lost: Vec<_> = changelog()
        .into_iter()
        .filter(|(version, is_released)| *is_released && !script(version).exists())
        .collect();
    assert!(lost.is_empty(), "sql/released lacks what CREATE EXTENSION of {lost:?} has run");
}

#[test]
fn upgrades_go_over_several_scripts() {
    let scripts = [("1", "2"), ("2", "3"), ("5", "6")].map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert!(reached("1", &scripts).contains("3"));
    assert!(!reached("3", &scripts).contains("1"));
    assert!(!reached("1", &scripts).contains("6"));
}
