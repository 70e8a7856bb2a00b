//! Checks that docs/internals/model-map.md and model-rules.md match the model and the code.

use shardmaster_model::rules::Rule;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn after<'a>(text: &'a str, heading: &str) -> &'a str {
    text.split_once(heading).unwrap_or_else(|| panic!("there is no {heading}")).1
}

/// Returns the rows of a table of docs/internals/model-map.md or model-rules.md, below the heading.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let document = read("docs/internals/model-map.md") + &read("docs/internals/model-rules.md");
    let section = after(&document, &format!("## {heading}\n"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    section.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

/// Returns what stands between backquotes.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the names of an enum's variants in the model.
fn variants(path: &str, name: &str) -> BTreeSet<String> {
    let text = read(path);
    let body = after(&text, &format!("pub enum {name} {{\n"));
    let body = body.split("\n}").next().unwrap_or_default();
    let is_name = |line: &&str| line.starts_with(char::is_uppercase);
    let name = |line: &str| line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
    body.lines().filter_map(|line| line.strip_prefix("    ")).filter(is_name).map(name).collect()
}

fn first_names(heading: &str) -> BTreeSet<String> {
    rows(heading).iter().flat_map(|row| names(&row[0])).collect()
}

#[test]
fn every_action_is_a_place_in_the_code() {
    let steps = variants("pgrx-tests/model/src/state.rs", "Pc");
    assert!(steps.len() > 50, "{steps:?}");
    assert_eq!(first_names("What a worker does"), steps);
    let mut acts = variants("pgrx-tests/model/src/model.rs", "Act");
    acts.remove("Works");
    assert_eq!(first_names("What else happens"), acts);
    for row in rows("What a worker does").iter().chain(&rows("What else happens")) {
        let place = names(&row[1]);
        let Some((path, items)) = place.split_first() else { continue };
        let text = read(path);
        for item in items {
            // A function in Rust, or in SQL.
            let is_there = [format!("fn {item}("), format!("fn {item}<"), format!(".{item}(")];
            assert!(
                is_there.iter().any(|text_of| text.contains(text_of)),
                "{path} has no {item}, see {row:?}"
            );
        }
    }
}

#[test]
fn every_rule_is_explained_and_left_out_once() {
    let known: BTreeSet<String> = Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
    let explained: BTreeSet<String> =
        ["Rules", "Rules of the reverse split"].iter().flat_map(|heading| first_names(heading)).collect();
    assert_eq!(explained, known);
    let tests = read("pgrx-tests/model/tests/rules.rs");
    for rule in known {
        let count = tests.matches(&format!("({rule},")).count();
        assert_eq!(count, 1, "tests of {rule}");
    }
}
