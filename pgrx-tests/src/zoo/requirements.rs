//! What tables of the zoo require of a server, and what a server has. The packages of other versions lack
//! libraries. The system's server lacks nothing.

use super::Case;
use crate::{Result, env};
use postgres::Client;
use std::collections::BTreeMap;
use std::io::Write;

/// A feature that a server may lack.
struct Requirement {
    name: &'static str,
    /// The statements that create it, and that fail if the server lacks it.
    make: &'static str,
    /// A definition with one of these words requires it.
    words: &'static [&'static str],
}

const fn need(name: &'static str, make: &'static str, words: &'static [&'static str]) -> Requirement {
    Requirement { name, make, words }
}

const NEEDS: &[Requirement] = &[
    // Nondeterministic collations.
    need(
        "ICU",
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE COLLATION ci_as (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        &["COLLATE ci", "COLLATE ci_as", "collation = ci"],
    ),
    need("XML", "SELECT '<a/>'::xml", &["xml"]),
    need("citext", "CREATE EXTENSION citext", &["citext"]),
    need("hstore", "CREATE EXTENSION hstore", &["hstore", "ghstore"]),
    need("ltree", "CREATE EXTENSION ltree", &["ltree", "lquery", "ltxtquery", "ltree_gist"]),
    need(
        "isn",
        "CREATE EXTENSION isn",
        &["ean13", "isbn13", "ismn13", "issn13", "isbn", "ismn", "issn", "upc"],
    ),
    need("cube", "CREATE EXTENSION cube", &["cube"]),
    need("seg", "CREATE EXTENSION seg", &["seg"]),
    need("intarray", "CREATE EXTENSION intarray", &["query_int"]),
    need("lo", "CREATE EXTENSION lo", &["lo"]),
    need("pg_trgm", "CREATE EXTENSION pg_trgm", &["gin_trgm_ops", "gist_trgm_ops"]),
    need("btree_gist", "CREATE EXTENSION btree_gist", &["USING gist (tenant", "WITHOUT OVERLAPS"]),
    need("btree_gin", "CREATE EXTENSION btree_gin", &["USING gin (tenant"]),
];

/// Whether the text contains the words, and not as a part of others.
fn has_words(text: &str, words: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + words.len()..].starts_with(is_word))
}

/// The features of a server of the zoo.
pub struct ServerFeatures {
    major: u32,
    /// The names of features that it lacks, with its error.
    lacks: BTreeMap<&'static str, String>,
}

/// Words of a definition, and the version that has them first.
const FIRST: &[(&str, u32)] = &[
    ("multirange", 14),
    ("pg_brin_bloom_summary", 14),
    ("pg_brin_minmax_multi_summary", 14),
    (" COMPRESSION ", 14),
    ("NULLS NOT DISTINCT", 15),
];

impl ServerFeatures {
    /// Creates everything that a server has. The system's server must have everything.
    pub fn furnish(session: &mut Client) -> Result<ServerFeatures> {
        let has = ServerFeatures::furnish_in_part(session)?;
        if has.lacks.is_empty() || env::may_lack() {
            return Ok(has);
        }
        Err(format!("the server lacks {:?}", has.lacks).into())
    }

    /// Creates what a server has. One from a package may lack something.
    pub fn furnish_in_part(session: &mut Client) -> Result<ServerFeatures> {
        let major = "SELECT current_setting('server_version_num')::int / 10000";
        let major: i32 = session.query_one(major, &[])?.get(0);
        let mut has = ServerFeatures { major: major.cast_unsigned(), lacks: BTreeMap::new() };
        for need in NEEDS {
            match session.batch_execute(need.make) {
                // The server was built without it, or its files are missing.
                Err(e) if e.code().is_some_and(|c| ["0A000", "58P01"].contains(&c.code())) => {
                    let said = e.as_db_error().map_or_else(|| e.to_string(), |e| e.message().to_owned());
                    has.lacks.insert(need.name, said);
                }
                other => other?,
            }
        }
        Ok(has)
    }

    /// Returns why a table cannot be on the server.
    fn problem(&self, case: &Case) -> Option<String> {
        let of_words =
            FIRST.iter().filter(|(words, _)| case.source.contains(words) || case.target.contains(words));
        let since = of_words.map(|(_, since)| *since).max().unwrap_or(0).max(case.since);
        if since > self.major {
            return Some(format!("PostgreSQL {since} has it first"));
        }
        let is_lacking = |need: &&Requirement| {
            let is_in = |text: &str| need.words.iter().any(|words| has_words(text, words));
            self.lacks.contains_key(need.name) && (is_in(&case.source) || is_in(&case.target))
        };
        let need = NEEDS.iter().find(is_lacking)?;
        Some(format!("the server has no {}: {}", need.name, self.lacks[need.name]))
    }

    /// Whether the server takes the case's rows: before 14 no numeric is infinite.
    pub fn takes_rows(&self, case: &Case) -> bool {
        let is_infinite = || case.fill.iter().any(|rows| rows.contains("Infinity"));
        self.major >= 14 || !case.source.contains(" v num") || !is_infinite()
    }

    /// Returns the tables that can be on the server, and reports each other one.
    pub fn keep(&self, cases: Vec<Case>) -> Result<Vec<Case>> {
        let mut kept = Vec::new();
        for case in cases {
            match self.problem(&case) {
                None => kept.push(case),
                Some(problem) => self.tell(&case, &problem)?,
            }
        }
        Ok(kept)
    }

    /// This does not use println!, whose output is shown only if the test fails.
    fn tell(&self, case: &Case, problem: &str) -> Result<()> {
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text = one_line(&case.source);
        if case.target != case.source {
            text = format!("{text}; target: {}", one_line(&case.target));
        }
        let (major, table) = (self.major, &case.table);
        Ok(writeln!(std::io::stderr(), "zoo: PostgreSQL {major}: left out {table}: {problem}: {text}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::has_words;

    #[test]
    fn words_are_whole() {
        assert!(has_words("v text COLLATE ci, PRIMARY KEY", "COLLATE ci"));
        assert!(!has_words("v text COLLATE ci_as, PRIMARY KEY", "COLLATE ci"));
        assert!(has_words("tenant text, v lo, w int", "lo") && !has_words("v login, lower(v)", "lo"));
        assert!(has_words("v citext[]", "citext") && !has_words("isbn13", "isbn"));
    }
}
