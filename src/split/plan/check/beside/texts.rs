//! Functions over the moving tables, wherever they are, found by the names in their texts: those of an API's schema
//! that clients call, and what functions call in other schemas.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::catalog::shard::{self, Shard};
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::in_one;
use std::collections::{BTreeMap, BTreeSet};

const TEXTS: &str = include_str!("../../../../../sql/check/texts.sql");
/// The greatest number of functions that are read, those of the tables' schemas first.
const MOST: usize = 5_000;

struct Function {
    schema: String,
    name: String,
    /// A trigger, a default, a constraint or a policy of the tables calls it.
    is_called: bool,
    /// It is in a schema of the tables.
    is_own: bool,
    words: BTreeSet<String>,
}

/// The functions over the tables, and the names in them.
#[derive(Default)]
pub struct Used {
    /// Functions in other schemas than the tables', by schema and name.
    pub functions: Vec<(String, String)>,
    /// All names in the texts of these and of the functions in the tables' schemas.
    pub words: BTreeSet<String>,
    /// The names in the texts of functions that writes to the tables call.
    pub called: BTreeSet<String>,
}

struct BesideTexts {
    functions: Vec<Function>,
    /// The schemas of the tables and of views over them, by their names.
    relations: BTreeMap<String, Vec<String>>,
    others: BTreeSet<(String, String)>,
}

pub fn find(session: &mut Connection, shard: &Shard, lists: &[String; 2]) -> Result<Used> {
    let texts = read(session, shard, lists)?;
    let over =
        texts.with_callees(|function| function.is_own || function.is_called || texts.is_over(function));
    let outside = over.iter().filter(|function| !function.is_own);
    let functions = outside.map(|function| (function.schema.clone(), function.name.clone())).collect();
    let said = |all: Vec<&Function>| all.iter().flat_map(|function| function.words.iter().cloned()).collect();
    Ok(Used { functions, words: said(over), called: said(texts.with_callees(|function| function.is_called)) })
}

impl BesideTexts {
    /// Whether a function names one of the tables, and not another one of its own schema.
    fn is_over(&self, function: &Function) -> bool {
        let mut named = function.words.iter().filter_map(|word| Some((word, self.relations.get(word)?)));
        named.any(|(name, schemas)| {
            schemas.iter().any(|schema| function.words.contains(schema))
                || !self.others.contains(&(function.schema.clone(), name.clone()))
        })
    }

    /// Returns some functions, and what these call, and so on.
    fn with_callees(&self, starts: impl Fn(&Function) -> bool) -> Vec<&Function> {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, function) in self.functions.iter().enumerate() {
            by_name.entry(&function.name).or_default().push(at);
        }
        let all = self.functions.iter().enumerate();
        let mut open: Vec<usize> = all.filter(|(_, function)| starts(function)).map(|(at, _)| at).collect();
        let mut found: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(function) = open.pop().and_then(|at| self.functions.get(at)) {
            let named = function.words.iter().filter_map(|word| by_name.get(word.as_str())).flatten();
            for at in named {
                let is_meant = self.functions.get(*at).is_some_and(|callee| {
                    callee.is_own
                        || callee.schema == function.schema
                        || function.words.contains(&callee.schema)
                });
                if is_meant && found.insert(*at) {
                    open.push(*at);
                }
            }
        }
        found.iter().filter_map(|at| self.functions.get(*at)).collect()
    }
}

fn read(session: &mut Connection, shard: &Shard, lists: &[String; 2]) -> Result<BesideTexts> {
    let of_others = text_array(&in_one(|| shard::schemas_of_others(shard)));
    let most = MOST.to_string();
    let rows = catalogs::ask(session, TEXTS, &catalogs::given(&[&lists[0], &lists[1], &of_others, &most]))?;
    let mut texts =
        BesideTexts { functions: Vec::new(), relations: BTreeMap::new(), others: BTreeSet::new() };
    let mut add = |row: Vec<Option<String>>| -> Option<()> {
        let [kind, schema, name, is_called, is_own, text] = <[_; 6]>::try_from(row).ok()?;
        let (schema, name) = (schema?, name?);
        match (kind?.as_str(), text) {
            ("function", Some(text)) => {
                let is = |cell: Option<String>| cell.as_deref() == Some("t");
                let (is_called, is_own, words) = (is(is_called), is(is_own), words(&text));
                texts.functions.push(Function { schema, name, is_called, is_own, words });
            }
            ("relation", _) => texts.relations.entry(name).or_default().push(schema),
            (_, _) => drop(texts.others.insert((schema, name))),
        }
        Some(())
    };
    let is_read = rows.rows.into_iter().all(|row| add(row).is_some());
    is_read
        .then_some(texts)
        .ok_or_else(|| RemoteError::unreadable(session.shard(), "what its functions say").into())
}

/// Returns the names that a text may contain, in quotes or not, without those in comments.
fn words(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("/*");
    let mut said = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        said.push(' ');
        said += part.split_once("*/").map_or(part, |(_, behind)| behind);
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let plain = said.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    let plain = plain.flat_map(|word| [word.to_owned(), word.to_lowercase()]);
    let quoted = said.split('"').skip(1).step_by(2).map(str::to_owned);
    plain.chain(quoted).filter(|word| word.len() < 64).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn names_are_found_in_quotes_and_not_in_comments() {
        let text = "SELECT count(*) FROM Public.items, \"odd name\" -- of\n /* others */ WHERE api.f($1)";
        let found = words(text);
        for name in ["public", "items", "odd name", "api", "f"] {
            assert!(found.contains(name), "{name}: {found:?}");
        }
        assert!(!found.contains("of") && !found.contains("others"), "{found:?}");
    }
}
