//! A function with its text, or another text that runs.

use super::by_table;
use super::doings::Doings;
use super::names::{names_in, names_that_run};
use std::collections::BTreeSet;

/// The prefix of a table's key among functions.
const TABLE: &str = "table ";

#[derive(Default)]
pub struct Body {
    /// `None` for a text that is not a function's.
    pub oid: Option<String>,
    /// The kind of function, and how SQL calls it.
    pub signature: String,
    pub name: String,
    pub text: String,
    /// `None` if it is not a function's.
    pub language: Option<String>,
    /// The names of its parameters.
    pub args: BTreeSet<String>,
    /// A table that texts name: whether they write to it, and so run its triggers, is unknown.
    pub is_table: bool,
    pub words: BTreeSet<String>,
    /// The names that are not in comments.
    pub named: BTreeSet<String>,
    /// Names in the arguments of pg_get_serial_sequence().
    pub serials: BTreeSet<String>,
    pub functions: Vec<String>,
    pub sequences: Vec<String>,
    pub doings: Doings,
}

pub fn body(mut row: Vec<Option<String>>) -> Option<(String, Body)> {
    row.resize(8, None);
    let [key, signature, name, text, functions, sequences, language, args] = <[_; 8]>::try_from(row).ok()?;
    let list = |cell: Option<String>| -> Vec<String> {
        let cell = cell.unwrap_or_default();
        let items = cell.trim_matches(['{', '}']).split(',').filter(|item| item.parse::<u32>().is_ok());
        items.map(str::to_owned).collect()
    };
    let key = key?;
    let is_function = key.parse::<u32>().is_ok();
    let mut body = Body {
        oid: is_function.then(|| key.clone()),
        is_table: !is_function && key.starts_with(TABLE),
        signature: if is_function { format!("function {}", signature?) } else { signature? },
        name: name?,
        functions: list(functions),
        sequences: list(sequences),
        language,
        args: names_in(&args.unwrap_or_default()),
        ..Body::default()
    };
    body.read(&text.unwrap_or_default());
    Some((key, body))
}

impl Body {
    pub fn read(&mut self, text: &str) {
        #[cfg(not(test))]
        pgrx::check_for_interrupts!();
        self.words.extend(names_in(text));
        self.named.extend(names_that_run(text));
        self.serials.extend(by_table::asked_for(text));
        self.doings.add(&Doings::of(text));
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Returns functions of casts, and of operators that its text has, and adds them to its own names.
    pub fn runs_unnamed(&mut self, unnamed: &[Vec<Option<String>>]) -> Vec<String> {
        let runs = |row: &&Vec<Option<String>>| {
            let sign = row.first().and_then(Option::as_deref);
            sign.is_none_or(|sign| self.text.contains(sign))
        };
        let runs = unnamed.iter().filter(runs).filter_map(|row| row.get(1).cloned().flatten());
        let runs: Vec<String> = runs.collect();
        self.functions.extend(runs.iter().cloned());
        runs
    }
}
