//! Records of what tests have tried, one per line, for docs/internals/reliability.md. They are appended to
//! the file SHARDMASTER_RECORDS. Without it nothing is kept.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

/// The name and value of a fact.
pub type Fact<'a> = (&'a str, &'a dyn Display);

/// Appends one line in one write, because several programs write to the file at the same time.
pub fn keep(kind: &str, facts: &[Fact<'_>]) {
    let Some(path) = std::env::var_os("SHARDMASTER_RECORDS") else { return };
    let mut line = kind.to_owned();
    for (name, value) in facts {
        line += &format!("\t{name}={value}");
    }
    line.push('\n');
    let file = std::fs::OpenOptions::new().append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns milliseconds, the unit of all times in the records.
pub fn milliseconds(time: Duration) -> u128 {
    time.as_millis()
}
