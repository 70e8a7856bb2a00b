//! What tests have tried, a line each, for docs/internals/reliability.md: appended to the file that
//! SHARDMASTER_RECORDS names. Without it nothing is kept.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

/// A fact's name and value.
pub type Fact<'a> = (&'a str, &'a dyn Display);

/// One line in one write: several programs write to the file at the same time.
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

/// In milliseconds, as the lines have times.
pub fn milliseconds(time: Duration) -> u128 {
    time.as_millis()
}
