//! The rooms of this library, from the lowest floor to the highest: each uses only the rooms below it. No two files
//! need each other, directly or through others. These tests fail for an arrow that points up, or that closes a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The floors from the lowest up; rooms of one floor do not use each other.
const FLOORS: [&[&str]; 13] = [
    &["majors", "clean", "words"],
    &["error", "guc", "named_enum"],
    &["server", "keys"],
    &["remote"],
    &["keychain", "native"],
    &["catalog"],
    &["agent"],
    &["placement", "gateway", "snowflake", "query", "numbers", "survey"],
    &["routing", "schema", "execution", "import", "misplaced"],
    &["split", "lookups", "derive"],
    &["guard", "reference", "report"],
    &["worker"],
    &["api", "tests", "layers", "versions", "properties"],
];

/// The floors within `split`, the largest room: its folders and files, and the files of a folder that stand higher
/// than the folder.
const FLOORS_OF_SPLIT: [&[&str]; 19] = [
    &[
        "aborted",
        "blocks",
        "injection_points",
        "phases",
        "readers",
        "reads",
        "remark",
        "reverse_preconditions",
    ],
    &["finding"],
    &["untrusted_code", "table"],
    &["references", "unregistered"],
    &["engine"],
    &["sequences", "analyze"],
    &["verify"],
    &["copy"],
    &["record", "metrics", "plan::check::beside"],
    &["sequences::named", "references::check"],
    &["sequences::check"],
    &["plan"],
    &["since_check"],
    &["install", "redirect"],
    &["cutover"],
    &["end"],
    &["reverse"],
    &["diagnose", "lifecycle"],
    &["run"],
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns all files of the library, each with its room.
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

/// Returns the code of a file up to its tests, without comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().take_while(|line| !(line.starts_with("#[cfg(") && line.contains("test")));
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns the rooms that a piece of code names: `crate::room`, also in `crate::{room, ..}`.
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

/// Returns the paths of `use` statements, each in full.
fn used(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for statement in code.split(';') {
        let Some(at) = statement.rfind("use ").filter(|at| !statement[at + 4..].contains(['=', '('])) else {
            continue;
        };
        spell_out("", &statement[at + 4..], &mut found);
    }
    found
}

fn spell_out(before: &str, path: &str, found: &mut Vec<String>) {
    let Some((prefix, list)) = path.split_once('{') else {
        let name = path.split(" as ").next().unwrap_or_default();
        found.push(format!("{before}{}", name.trim()));
        return;
    };
    let before = format!("{before}{}", prefix.trim());
    let list = list.trim_end().strip_suffix('}').unwrap_or(list);
    let mut depth = 0;
    let parts = list.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        spell_out(&before, part, found);
    }
}

/// Returns the module of a file, for example `split::copy`; the library itself is "".
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(source()).unwrap().with_extension("");
    let names: Vec<String> = inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let names = names.strip_suffix(&["mod".to_owned()]).unwrap_or(&names);
    if names == ["lib"] { String::new() } else { names.join("::") }
}

/// Returns the file that a path leads to, as seen from a module: the longest part of the path that is a module.
fn target<'a>(modules: &'a BTreeSet<String>, here: &str, path: &str) -> Option<&'a String> {
    let mut base: Vec<&str> = here.split("::").filter(|name| !name.is_empty()).collect();
    let mut rest: Vec<&str> = path.split("::").collect();
    match rest.first().copied()? {
        "crate" => {
            base.clear();
            rest.remove(0);
        }
        "self" => {
            rest.remove(0);
        }
        "super" => {
            while rest.first() == Some(&"super") {
                base.pop();
                rest.remove(0);
            }
        }
        child if modules.contains([&base[..], &[child]].concat().join("::").as_str()) => {}
        _ => return None,
    }
    base.extend(rest);
    (1..=base.len()).rev().find_map(|length| modules.get(base[..length].join("::").as_str()))
}

/// Returns for each file the files that it needs.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let files = files();
    let modules: BTreeSet<String> = files.keys().map(|path| module(path)).collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut arrows = BTreeMap::new();
    for path in files.keys() {
        let (here, code) = (module(path), code(path));
        let mut paths = used(&code);
        // These are the paths within the code: `crate::room::file::f()`, `child::f()`.
        paths.extend(
            code.split(|c| !is_path(c))
                .filter(|path| path.contains("::") && !path.ends_with("::"))
                .map(str::to_owned),
        );
        let needs =
            paths.iter().filter_map(|path| target(&modules, &here, path)).filter(|there| **there != here);
        // Every file may use the items of the library's own file.
        let needs = needs.filter(|there| !there.is_empty() && !here.is_empty()).cloned().collect();
        arrows.insert(here, needs);
    }
    arrows
}

#[test]
fn no_arrows_run_in_a_circle() {
    let mut left: BTreeMap<String, BTreeSet<String>> = arrows();
    assert!(left.values().map(BTreeSet::len).sum::<usize>() > 500, "hardly an arrow was found");
    // A file that needs no remaining file, or that no remaining file needs, is in no circle.
    loop {
        let needed: BTreeSet<String> = left.values().flatten().cloned().collect();
        let before = left.len();
        let there: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|file, needs| needed.contains(file) && needs.iter().any(|other| there.contains(other)));
        if left.len() == before {
            break;
        }
    }
    let within = |needs: &BTreeSet<String>| {
        needs.iter().filter(|other| left.contains_key(*other)).cloned().collect::<Vec<_>>().join(", ")
    };
    let circles: Vec<String> =
        left.iter().map(|(file, needs)| format!("{file} needs {}", within(needs))).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn paths_are_spelled_out() {
    let code = "pub use super::a::{self, b::{C, d}, E as F};\nfn f() { let x = 1; }";
    assert_eq!(used(code), ["super::a::self", "super::a::b::C", "super::a::b::d", "super::a::E"]);
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

/// Returns the floor and the unit of `split` that a module is in.
fn floor_of_split(module: &str) -> Option<(usize, &'static str)> {
    let inside = module.strip_prefix("split::")?;
    let units =
        FLOORS_OF_SPLIT.iter().enumerate().flat_map(|(at, units)| units.iter().map(move |unit| (at, *unit)));
    let is_in =
        |unit: &str| inside == unit || inside.strip_prefix(unit).is_some_and(|rest| rest.starts_with("::"));
    units.filter(|(_, unit)| is_in(unit)).max_by_key(|(_, unit)| unit.len())
}

#[test]
fn every_arrow_within_split_runs_down() {
    let mut wrong = Vec::new();
    for (here, needs) in arrows().iter().filter(|(here, _)| here.starts_with("split::")) {
        let Some((floor, unit)) = floor_of_split(here) else {
            wrong.push(format!("{here}: in no unit"));
            continue;
        };
        let above = needs
            .iter()
            .filter(|there| floor_of_split(there).is_some_and(|(other, its)| other >= floor && its != unit));
        // A folder may name those of its files that stand higher.
        wrong.extend(
            above
                .filter(|there| !there.starts_with(&format!("{here}::")))
                .map(|there| format!("{here}: knows {there}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_are_found_in_any_form_of_a_path() {
    let code = "use crate::{error, keys::{interval, scope::Scope}};\nfn f() { crate::worker::g() }";
    assert_eq!(named(code), ["error", "keys", "worker"]);
}

/// Only the functions of one folder change the row of a split, so that each possible state of it is found there.
#[test]
fn the_row_of_a_split_is_written_in_one_folder() {
    let writes = ["UPDATE", "INTO", "DELETE FROM"].map(|verb| format!("{verb} shardmaster.split_plan"));
    let home = source().join("catalog").join("split_state");
    let mut texts: Vec<(PathBuf, String)> =
        files().into_keys().map(|path| (path.clone(), code(&path))).collect();
    let mut folders = vec![source().with_file_name("sql")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_history = path.to_string_lossy().contains("shardmaster--") || path.ends_with("released");
            match path.is_dir() {
                _ if is_history => {}
                true => folders.push(path),
                false => texts.push((path.clone(), std::fs::read_to_string(&path).unwrap())),
            }
        }
    }
    let writers = texts.iter().filter(|(_, text)| writes.iter().any(|write| text.contains(write.as_str())));
    let (inside, outside): (Vec<_>, Vec<_>) =
        writers.map(|(path, _)| path).partition(|path| path.starts_with(&home));
    assert!(inside.len() == 2 && outside.is_empty(), "{inside:?} {outside:?}");
}

/// Each name has one meaning: a reader who searches for a type finds one.
#[test]
fn no_two_types_have_one_name() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files().into_keys() {
        for line in code(&path).lines() {
            let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
            let words = match words.as_slice() {
                ["pub", "", "super", "", rest @ ..] | ["pub", rest @ ..] => rest,
                rest => rest,
            };
            if let ["struct" | "enum" | "trait" | "type", name, ..] = words {
                homes.entry((*name).to_owned()).or_default().push(module(&path));
            }
        }
    }
    assert!(homes.len() > 500, "hardly a type was found");
    let twice: Vec<String> = homes
        .iter()
        .filter(|(_, homes)| homes.len() > 1)
        .map(|(name, homes)| format!("{name}: {}", homes.join(", ")))
        .collect();
    assert!(twice.is_empty(), "{}", twice.join("\n"));
}
