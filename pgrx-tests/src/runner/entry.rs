//! The tests of a run, and how long they took the last time.

use crate::{Error, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// A test: its name, and the command that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Entry {
    /// Parses lines with name, program and arguments, separated by tabs.
    pub fn list(text: &str) -> Result<Vec<Entry>> {
        text.lines().map(Entry::of_line).collect()
    }

    fn of_line(line: &str) -> Result<Entry> {
        let mut parts = line.split('\t').map(str::to_owned);
        let (Some(name), Some(program)) = (parts.next(), parts.next()) else {
            return Err(Error::from(format!("no test: {line}")));
        };
        Ok(Entry { name, program: program.into(), arguments: parts.collect() })
    }
}

/// Returns the test that a test is a part of, by its name: `.._2_of_8`. Each part has many servers, so only
/// few parts run at a time.
pub fn whole_of(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, parts) = name.rsplit_once("_of_")?;
    let (whole, part) = first.rsplit_once('_')?;
    (is_number(part) && is_number(parts)).then_some(whole)
}

/// The time that tests took, by name.
#[derive(Default)]
pub struct Times(HashMap<String, Duration>);

impl Times {
    /// Parses lines with a name and seconds. More columns and other lines are ignored. Later lines override
    /// earlier ones.
    pub fn read(text: &str) -> Times {
        let times = text.lines().filter_map(|line| {
            let mut parts = line.split('\t');
            let (name, seconds) = (parts.next()?, parts.next()?.parse().ok()?);
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds).ok()?))
        });
        Times(times.collect())
    }

    /// Sorts the longest first, so that none of them is left alone at the end. Tests without a time are new or short.
    pub fn order(&self, entries: &mut [Entry]) {
        let time = |entry: &Entry| self.0.get(&entry.name).copied().unwrap_or_default();
        entries.sort_by_key(|entry| std::cmp::Reverse(time(entry)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_test() {
        let entries = Entry::list("a::b\t/bin/x\t--exact\ta::b\nunit\t/bin/y\n").unwrap();
        assert_eq!(entries[0].arguments, ["--exact", "a::b"]);
        assert_eq!((entries[1].name.as_str(), entries[1].arguments.len()), ("unit", 0));
        assert!(Entry::list("nothing").is_err());
    }

    #[test]
    fn parts_have_a_number() {
        assert_eq!(whole_of("a::away_2_of_8"), Some("a::away"));
        assert_eq!(whole_of("a::what_is_left_of_8"), None);
        assert_eq!(whole_of("a::one_of_them"), None);
    }

    #[test]
    fn the_longest_comes_first_and_what_is_not_known_last() {
        let times = Times::read("# made by hand\na\t9.25\t1.5\nb\t3.5\nc\tmuch\na\t2\t1\n");
        let mut entries = Entry::list("a\tx\nb\tx\nnew\tx\n").unwrap();
        times.order(&mut entries);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "new"]);
    }
}
