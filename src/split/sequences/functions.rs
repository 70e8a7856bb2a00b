//! Sequences that functions name: of a column's default, of a domain's, of a trigger, and of what these call. PostgreSQL knows what
//! is in bodies of standard SQL; of others the text is read for names of sequences and functions. Which name a text means, and
//! whether it ever draws, is not to be known: one too many is raised as well, which takes numbers away and gives none out twice.

use super::draw::{self, Asked, By, Draw, Named};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::{array_of, text_array};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const CALLERS: &str = include_str!("../../../sql/sequences/callers.sql");
const BODIES: &str = include_str!("../../../sql/sequences/bodies.sql");

/// Functions that call functions are followed so far, and so many of them in all.
const DEPTH: usize = 6;
const MOST_FUNCTIONS: usize = 2_000;
/// Names that are looked for of one text.
const MOST_NAMES: usize = 20_000;

/// A function that something of a table calls.
struct Caller {
    table: usize,
    column: Option<String>,
    what: String,
    /// Its number, or what stands for it where a default's own text names a sequence.
    function: String,
    text: Option<String>,
}

#[derive(Default)]
struct Body {
    /// As SQL calls it.
    signature: String,
    name: String,
    words: BTreeSet<String>,
    functions: Vec<String>,
    sequences: Vec<String>,
}

/// What functions draw from, and what their texts name.
#[derive(Default)]
pub struct Found {
    pub draws: Vec<Draw>,
    pub texts: Texts,
}

#[derive(Default)]
pub struct Texts {
    /// All names that are in them.
    pub words: BTreeSet<String>,
    /// What the functions are called themselves.
    pub names: BTreeSet<String>,
    /// The numbers of those that no text calls, but something of a table.
    pub called: BTreeSet<String>,
}

/// `tables`: their numbers, `schemas`: where a name without a schema is looked for.
pub fn find(connection: &mut Connection, tables: &[Option<&str>], schemas: &[String]) -> Result<Found> {
    let callers = callers(connection, tables)?;
    if callers.is_empty() {
        return Ok(Found::default());
    }
    let bodies = bodies(connection, &callers)?;
    let words: BTreeSet<String> = bodies.values().flat_map(|body| body.words.iter().cloned()).collect();
    let listed: Vec<String> = words.iter().cloned().collect();
    // A text may name the schema, too.
    let places: Vec<String> =
        schemas.iter().chain(&listed).cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let mut sequences = draw::by_name(connection, &places, &listed)?;
    let known: Vec<String> = bodies.values().flat_map(|body| body.sequences.iter().cloned()).collect();
    if !known.is_empty() {
        sequences.extend(draw::by_number(connection, &known)?);
    }
    let draws = describe(connection, tables, drawn(&callers, &bodies, &sequences, schemas))?;
    let names = bodies.into_values().map(|body| body.name).filter(|name| !name.is_empty()).collect();
    let calls = callers.into_iter().filter(|caller| caller.text.is_none());
    let called = calls.map(|caller| caller.function).collect();
    Ok(Found { draws, texts: Texts { words, names, called } })
}

fn callers(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Vec<Caller>> {
    let rows = catalogs::ask(connection, CALLERS, &[Some(&array_of(tables.iter().copied()))])?.rows;
    let caller = |row: Vec<Option<String>>| {
        let [position, column, what, function, text] = <[_; 5]>::try_from(row).ok()?;
        let (position, what) = (position?, what?);
        let function = function.unwrap_or_else(|| format!("{position} {what}"));
        Some(Caller { table: position.parse::<usize>().ok()?.checked_sub(1)?, column, what, function, text })
    };
    Ok(rows.into_iter().filter_map(caller).collect())
}

/// Those that are called, and those that these may call, by their numbers.
fn bodies(connection: &mut Connection, callers: &[Caller]) -> Result<BTreeMap<String, Body>> {
    let texts = callers.iter().filter_map(|caller| {
        let words = names_in(caller.text.as_ref()?);
        Some((caller.function.clone(), Body { words, ..Body::default() }))
    });
    let mut found: BTreeMap<String, Body> = texts.collect();
    let calls = callers.iter().filter(|caller| caller.text.is_none());
    let mut oids: Vec<String> = calls.map(|caller| caller.function.clone()).collect();
    let mut names: Vec<String> = Vec::new();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    for _ in 0..DEPTH {
        let lists = [text_array(&oids), text_array(&names)];
        let rows = catalogs::ask(connection, BODIES, &[Some(&lists[0]), Some(&lists[1])])?.rows;
        let new: Vec<(String, Body)> =
            rows.into_iter().filter_map(body).filter(|(oid, _)| !found.contains_key(oid)).collect();
        if new.is_empty() || found.len() > MOST_FUNCTIONS {
            break;
        }
        oids = new.iter().flat_map(|(_, body)| body.functions.iter().cloned()).collect();
        names = new
            .iter()
            .flat_map(|(_, body)| body.words.iter().cloned())
            .filter(|name| asked.insert(name.clone()))
            .collect();
        found.extend(new);
    }
    Ok(found)
}

fn body(row: Vec<Option<String>>) -> Option<(String, Body)> {
    let [oid, signature, name, text, functions, sequences] = <[_; 6]>::try_from(row).ok()?;
    let list = |cell: Option<String>| -> Vec<String> {
        let cell = cell.unwrap_or_default();
        let items = cell.trim_matches(['{', '}']).split(',').filter(|item| item.parse::<u32>().is_ok());
        items.map(str::to_owned).collect()
    };
    let body = Body {
        signature: signature?,
        name: name?,
        words: names_in(&text.unwrap_or_default()),
        functions: list(functions),
        sequences: list(sequences),
    };
    Some((oid?, body))
}

/// Names that a text has, in quotes or not: as it writes them, and as SQL reads them without quotes.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    // A quote in a comment turns inside and outside around: both are taken.
    let quoted = text.split('"');
    let plain =
        text.split(|c: char| !is_part(c)).filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()));
    let plain = plain.flat_map(|word| [word.to_owned(), word.to_lowercase()]);
    let names = plain.chain(quoted.map(str::to_owned));
    names.filter(|name| !name.is_empty() && name.len() < 64).take(MOST_NAMES).collect()
}

/// What a caller reaches.
struct Reached<'a> {
    caller: &'a Caller,
    /// As SQL calls the function that names it.
    signature: String,
    sequence: &'a Named,
    /// Names in all texts that the caller reaches.
    words: Rc<BTreeSet<String>>,
}

fn drawn<'a>(
    callers: &'a [Caller],
    bodies: &BTreeMap<String, Body>,
    sequences: &'a [Named],
    schemas: &[String],
) -> Vec<Reached<'a>> {
    let mut by_name: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for (oid, body) in bodies {
        by_name.entry(&body.name).or_default().push(oid);
    }
    let mut found = Vec::new();
    for caller in callers {
        let mut reached: BTreeSet<&String> = BTreeSet::new();
        let mut named = Vec::new();
        let mut left = vec![&caller.function];
        while let Some(oid) = left.pop() {
            let Some(body) = bodies.get(oid) else { continue };
            if !reached.insert(oid) {
                continue;
            }
            left.extend(&body.functions);
            left.extend(body.words.iter().filter_map(|word| by_name.get(word.as_str())).flatten().copied());
            let names = |sequence: &&Named| {
                body.sequences.contains(&sequence.oid)
                    || body.words.contains(&sequence.relname)
                        && (schemas.contains(&sequence.schema) || body.words.contains(&sequence.schema))
            };
            named.extend(sequences.iter().filter(names).map(|sequence| (body.signature.clone(), sequence)));
        }
        if !named.is_empty() {
            let bodies = reached.iter().filter_map(|oid| bodies.get(*oid));
            let words: Rc<BTreeSet<String>> =
                Rc::new(bodies.flat_map(|body| body.words.iter().cloned()).collect());
            let of = |(signature, sequence)| Reached { caller, signature, sequence, words: words.clone() };
            found.extend(named.into_iter().map(of));
        }
    }
    found
}

fn describe(
    connection: &mut Connection,
    tables: &[Option<&str>],
    found: Vec<Reached<'_>>,
) -> Result<Vec<Draw>> {
    let asked: Vec<Asked<'_>> = found
        .iter()
        .map(|reached| Asked {
            oid: &reached.sequence.oid,
            table: tables.get(reached.caller.table).copied().flatten(),
            role: None,
        })
        .collect();
    let facts = draw::facts(connection, &asked)?;
    let draws = found.into_iter().zip(facts).filter_map(|(reached, sequence)| {
        let Reached { caller, signature, words, .. } = reached;
        Some(Draw {
            words,
            table: Some(caller.table),
            column: caller.column.clone(),
            by: By::Function(match signature.is_empty() {
                true => caller.what.clone(),
                false => format!("{}, by function {signature}", caller.what),
            }),
            sequence: sequence?,
            in_unique: true,
            holds: None,
            role: None,
        })
    });
    Ok(draws.collect())
}

#[cfg(test)]
mod tests {
    use super::names_in;

    #[test]
    fn names_of_a_text_are_read_as_sql_reads_them() {
        let text = r#"BEGIN NEW.id := nextval('Codes_seq'); PERFORM nextval('app."Odd seq"'); -- 42
            NEW.n := "Next"(); RETURN NEW; END"#;
        let names = names_in(text);
        for name in ["codes_seq", "Codes_seq", "app", "Odd seq", "Next", "next", "nextval"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
        assert!(!names.contains("42") && !names.contains(""));
    }
}
