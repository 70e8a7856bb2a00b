//! The input of the Lua modules in `clients/lua`, and the modules themselves, so that a configuration needs no other
//! file.

use super::map::{KeyspaceMap, upstream};
use super::text::indented;
use crate::catalog::gateway::{GatewayBackend, GatewayEntries, GatewayEntry};
use crate::catalog::keyspace::Keyspace;
use crate::keys::strategy::Strategy;
use std::collections::HashMap;
use std::fmt::Write;

const MODULES: [(&str, &str); 4] = [
    ("shardmaster.hash", include_str!("../../clients/lua/shardmaster/hash.lua")),
    ("shardmaster.keys", include_str!("../../clients/lua/shardmaster/keys.lua")),
    ("shardmaster.route", include_str!("../../clients/lua/shardmaster/route.lua")),
    ("shardmaster.request", include_str!("../../clients/lua/shardmaster/request.lua")),
];

/// nginx reads a configuration through a buffer of 4,096 bytes, and no string in it may be longer.
const LINE: usize = 1000;

/// Returns a chunk that returns the keyspace's function from keys to places.
pub fn module(map: &KeyspaceMap) -> String {
    let mut text = preload();
    let _ = write!(text, "return require(\"shardmaster.route\") {}", space(map));
    text
}

/// Returns code that lets `require` find the modules.
pub fn preload() -> String {
    let mut text = String::new();
    for (name, source) in MODULES {
        let _ = writeln!(text, "package.preload[\"{name}\"] = function()\n{}end\n", indented(source, 4));
    }
    text
}

/// Returns the table that `shardmaster.route` takes.
pub fn space(map: &KeyspaceMap) -> String {
    let mut text = format!(
        "{{\n    strategy = \"{}\", key_type = \"{}\",",
        map.keyspace.strategy.name(),
        map.keyspace.key_type().as_str()
    );
    if let Some(buckets) = map.keyspace.strategy.buckets() {
        let _ = write!(text, " buckets = {buckets},");
    }
    text += "\n    places = {";
    for place in &map.backends {
        match place.takes_requests() {
            true => text += &format!(" {},", quoted(&upstream(&map.keyspace, place))),
            // The shard has no service.
            false if place.is_open => text += " 0,",
            false => text += " false,",
        }
    }
    text += " },\n    shards = {";
    for place in &map.backends {
        let _ = write!(text, " {},", quoted(&place.shard_key));
    }
    text += " },\n    entries = {\n";
    for line in &map.entries {
        let _ = writeln!(text, "        \"{line}\",");
    }
    text + "    },\n}\n"
}

/// Returns lines of words for a string; the finders of `shardmaster.route` define the words.
pub fn entries(keyspace: &Keyspace, places: &[GatewayBackend], found: &GatewayEntries) -> Vec<String> {
    let numbers: HashMap<i32, usize> = places.iter().zip(1..).map(|(place, n)| (place.index, n)).collect();
    let place =
        |entry: &GatewayEntry| numbers.get(&entry.shard_index).copied().unwrap_or_default().to_string();
    let bound = |bound: &Option<String>| bound.as_deref().map_or("*".to_owned(), word);
    let mut lines = vec![String::new()];
    for entry in &found.entries {
        let words = match keyspace.strategy {
            // A request cannot carry an empty key.
            Strategy::Directory if entry.key.is_empty() => continue,
            Strategy::Directory => format!("{} {}", word(&entry.key), place(entry)),
            Strategy::Hash { .. } => place(entry),
            Strategy::Range { .. } => {
                format!("{} {} {}", bound(&entry.lower), bound(&entry.upper), place(entry))
            }
        };
        for word in words.split(' ') {
            append(&mut lines, word);
        }
    }
    lines
}

/// Appends a word. Lines end between words if possible; a key of a thousand bytes is split.
fn append(lines: &mut Vec<String>, word: &str) {
    let mut rest = format!("{word} ");
    while let Some(line) = lines.last_mut() {
        let room = LINE - line.len();
        if rest.len() <= room {
            line.push_str(&rest);
            return;
        }
        if line.is_empty() {
            *line = rest.drain(..room).collect();
        }
        lines.push(String::new());
    }
}

/// Returns a key as one word of plain characters; %XX stands for a byte.
fn word(key: &str) -> String {
    let mut word = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:@/+=,~".contains(&byte) {
            word.push(char::from(byte));
        } else {
            let _ = write!(word, "%{byte:02X}");
        }
    }
    word
}

/// Returns a string in quotes.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:@/+=,~ ".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            let _ = write!(quoted, "\\{byte:03}");
        }
    }
    quoted + "\""
}
