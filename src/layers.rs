//! Rooms of this library, from the lowest floor to the highest: each uses only what is
//! below it. An arrow that runs up, or sideways, fails here and is not left to a reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Floors from the ground up; rooms of one floor do not know each other.
const FLOORS: [&[&str]; 11] = [
    &["majors", "clean"],
    &["error", "guc"],
    &["server", "keys"],
    &["remote"],
    &["catalog"],
    &["agent"],
    &["placement", "gateway", "snowflake"],
    &["routing"],
    &["split"],
    &["worker"],
    &["api", "tests", "layers"],
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All files of the library, with the room that each is in.
fn files() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![source()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(source()).unwrap().with_extension("");
                let room = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
                found.insert(path, room);
            }
        }
    }
    found
}

/// The code of a file up to its tests, without comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().take_while(|line| !(line.starts_with("#[cfg(") && line.contains("test")));
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Rooms that a piece of code names: `crate::room`, also in `crate::{room, ..}`.
fn named(code: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split(';').next().unwrap_or_default();
                let mut depth = 0;
                let top = list.split(|c| {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    c == ',' && depth == 0
                });
                let names = top.map(|item| item.trim().split(|c| !is_name(c)).next().unwrap_or_default());
                found.extend(names.filter(|name| !name.is_empty()));
            }
            None => found.extend(rest.split(|c| !is_name(c)).next()),
        }
    }
    found
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn every_arrow_runs_down() {
    let mut wrong = Vec::new();
    for (path, room) in files().iter().filter(|(_, room)| *room != "lib") {
        let Some(here) = floor(room) else {
            wrong.push(format!("{}: a room without a floor", path.display()));
            continue;
        };
        let code = code(path);
        for other in named(&code).into_iter().filter(|other| other != room) {
            if floor(other).is_some_and(|there| there >= here) {
                wrong.push(format!("{}: knows {other}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_are_found_in_any_form_of_a_path() {
    let code = "use crate::{error, keys::{interval, scope::Scope}};\nfn f() { crate::worker::g() }";
    assert_eq!(named(code), ["error", "keys", "worker"]);
}
