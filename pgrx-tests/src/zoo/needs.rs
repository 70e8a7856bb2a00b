//! What tables of the zoo need of a server, and what a server has. The packages of other
//! versions lack libraries; the system's server lacks nothing.

use super::Case;
use crate::{Result, env};
use postgres::Client;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;

/// Collations that are not deterministic are ICU's.
pub const ICU: &str = "ICU";
/// Without it the type is there, and no value of it.
const LIBXML: &str = "libxml";

/// What is needed where one of these is in a definition.
const NEEDS: &[(&str, &[&str])] = &[
    (ICU, &["COLLATE ci", "COLLATE ci_as", "collation = ci"]),
    (LIBXML, &["xml"]),
    ("citext", &["citext"]),
    ("hstore", &["hstore", "ghstore"]),
    ("ltree", &["ltree", "lquery", "ltxtquery", "ltree_gist"]),
    ("isn", &["ean13", "isbn13", "ismn13", "issn13", "isbn", "ismn", "issn", "upc"]),
    ("cube", &["cube"]),
    ("seg", &["seg"]),
    ("intarray", &["query_int"]),
    ("lo", &["lo"]),
    ("pg_trgm", &["gin_trgm_ops", "gist_trgm_ops"]),
    ("btree_gist", &["USING gist (tenant", "WITHOUT OVERLAPS"]),
    ("btree_gin", &["USING gin (tenant"]),
];

/// Whether the text has the words, and not as a part of others.
fn has_words(text: &str, words: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + words.len()..].starts_with(is_word))
}

/// A server of the zoo.
pub struct Has {
    major: u32,
    lacks: BTreeSet<String>,
}

impl Has {
    /// Makes each extension, and the collations.
    pub fn furnish(session: &mut Client) -> Result<Has> {
        let major = "SELECT current_setting('server_version_num')::int / 10000";
        let major: i32 = session.query_one(major, &[])?.get(0);
        let mut has = Has { major: major.cast_unsigned(), lacks: BTreeSet::new() };
        for (name, _) in NEEDS {
            let lacks = match *name {
                ICU => collations(session)?,
                LIBXML => create(session, "SELECT '<a/>'::xml")?,
                _ => extension(session, name)?,
            };
            if let Some(reason) = lacks {
                // Not println!, which only tests that fail are heard with.
                writeln!(std::io::stderr(), "zoo: no {name}: {reason}")?;
                has.lacks.insert((*name).to_owned());
            }
        }
        if has.lacks.is_empty() || env::may_lack() {
            return Ok(has);
        }
        Err(format!("the server lacks {:?}", has.lacks).into())
    }

    /// Why a table cannot be on the server.
    fn problem(&self, case: &Case) -> Option<Problem> {
        if case.since > self.major {
            return Some(Problem::Since(case.since));
        }
        let is_needed = |(name, words): &&(&'static str, &[&str])| {
            self.lacks.contains(*name)
                && words.iter().any(|words| has_words(&case.source, words) || has_words(&case.target, words))
        };
        NEEDS.iter().find(is_needed).map(|(name, _)| Problem::Lacks(name))
    }

    /// The tables that can be on the server; each other one is named.
    pub fn keep(&self, cases: Vec<Case>) -> Result<Vec<Case>> {
        let mut kept = Vec::new();
        for case in cases {
            match self.problem(&case) {
                None => kept.push(case),
                Some(problem) => writeln!(
                    std::io::stderr(),
                    "zoo: PostgreSQL {}: left out: {} ({}): {problem}",
                    self.major,
                    case.table,
                    case.source
                )?,
            }
        }
        Ok(kept)
    }
}

enum Problem {
    Lacks(&'static str),
    Since(u32),
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Lacks(name) => write!(to, "the server has no {name}"),
            Problem::Since(major) => write!(to, "a thing of PostgreSQL {major}"),
        }
    }
}

/// Why there is no such extension; None: it is made.
fn extension(session: &mut Client, name: &str) -> Result<Option<String>> {
    let known = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)";
    if !session.query_one(known, &[&name])?.get::<_, bool>(0) {
        return Ok(Some("no such extension".into()));
    }
    create(session, &format!("CREATE EXTENSION \"{name}\""))
}

/// Why the statements cannot be carried out here; None: they have been.
fn create(session: &mut Client, statements: &str) -> Result<Option<String>> {
    match session.batch_execute(statements) {
        // Built without a library, or its files are there and a library that they need is not.
        Err(e) if e.code().is_some_and(|c| ["0A000", "58P01"].contains(&c.code())) => {
            Ok(Some(e.as_db_error().map_or_else(|| e.to_string(), |e| e.message().to_owned())))
        }
        other => Ok(other.map(|()| None)?),
    }
}

fn collations(session: &mut Client) -> Result<Option<String>> {
    let known = "SELECT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i')";
    if !session.query_one(known, &[])?.get::<_, bool>(0) {
        return Ok(Some("no collation of that provider".into()));
    }
    create(
        session,
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE COLLATION ci_as (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
    )
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
