//! Whether anything may have changed that an observation of tables was read from, as one number of the catalogs' rows.
//! `sql/agent/stamp.sql` determines which rows count.

use crate::remote::template::{fill, sql};

const STAMP: &str = include_str!("../../sql/agent/stamp.sql");

/// What such an observation was read from, as lists: their names and element types, in the order in which it returns
/// them.
pub const LISTS: [(&str, &str); 11] = [
    ("relations", "oid"),
    ("types", "oid"),
    ("functions", "oid"),
    ("operators", "oid"),
    ("classes", "oid"),
    ("collations", "oid"),
    ("schemas", "oid"),
    ("owners", "oid"),
    ("sequences", "oid"),
    ("spaces", "name"),
    ("words", "name"),
];

/// Returns SQL for the number; `list` makes each list of its name and its number. `prefix`: the prefixes of the names
/// of triggers of which all of this extension's count.
pub fn value(list: impl Fn(&str, usize) -> String, prefix: &str) -> String {
    let value = |((name, of), number): (&(&'static str, &str), usize)| {
        (*name, sql(format!("{}::{of}[]", list(name, number))))
    };
    let prefix = ("prefix", sql(prefix));
    fill(STAMP, &LISTS.iter().zip(1..).map(value).chain([prefix]).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_has_its_place() {
        for (name, _) in LISTS {
            assert!(STAMP.contains(&format!("{{{name}}}")), "{name}");
        }
        let text = value(|_, number| format!("${number}"), "$12");
        assert!(!text.lines().any(|line| !line.starts_with("--") && line.contains('{')), "{text}");
        assert!(text.contains("$11::name[]"), "{text}");
    }
}
