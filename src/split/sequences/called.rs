//! The name by which a call of nextval() and the like draws: a known one, an argument, or one that a text composes.

use super::doings::Doings;
use super::tokens::TextToken::{self, Sign, Word};
use super::tokens::{joins, words};
use std::collections::BTreeSet;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// The name is unknown.
    Open,
    /// The name is an argument: it is followed if a known name is passed.
    Told,
    /// The name is composed of these words.
    Made(BTreeSet<String>),
    /// Each shard counts its own rows.
    Counted,
}

/// The context of a call.
pub struct Context<'a> {
    /// Sequences that the text names.
    pub named: &'a BTreeSet<String>,
    /// The text is the server's own, whose dependencies it knows.
    pub by_server: bool,
    /// The names of its parameters.
    pub args: &'a BTreeSet<String>,
    pub text: &'a str,
}

/// The placeholder for words of an argument.
pub const TOLD: &str = "$";

/// Returns how the sequence of a call is named. Returns None if it is a known sequence.
pub fn drawn(
    called: &[TextToken],
    Context { named, by_server, args, text }: &Context<'_>,
) -> Option<CallKind> {
    let begins = called.iter().position(|token| *token != Sign('(')).unwrap_or(called.len());
    let called = first_argument(&called[begins..]);
    let mut all = words(called);
    let first = called.first()?;
    let is_text = matches!(first, Sign('\'' | '$'));
    if *by_server && is_text && all.contains("regclass") && !all.contains("text") {
        return None;
    }
    let is_told = |all: &BTreeSet<String>| {
        all.contains("tg_argv") || called.contains(&Sign('$')) || all.iter().any(|word| args.contains(word))
    };
    let is_known = |all: &BTreeSet<String>| all.iter().any(|word| named.contains(word.as_str()));
    let is_joined = joins(called);
    let calls = called.windows(2).filter(|pair| pair[1] == Sign('(')).filter_map(|pair| pair[0].word());
    let is_made = is_joined || calls.clone().any(|name| name != "pg_get_serial_sequence");
    let is_quote = |at: usize| called[at] == Sign('\'') && (at == 0 || called[at - 1] != Sign('\''));
    let quotes = (0..called.len()).filter(|at| is_quote(*at)).count();
    if is_made || quotes > 2 && calls.count() == 0 {
        if is_told(&all) {
            all.insert(TOLD.to_owned());
        }
        return Some(CallKind::Made(all));
    }
    if is_known(&all) || all.contains("pg_get_serial_sequence") && !named.is_empty() {
        return None;
    }
    if is_told(&all) {
        return Some(CallKind::Told);
    }
    let doings = Doings::of(text);
    let mut sources = doings.with_sources(all.clone());
    if is_text || sources == all {
        return Some(CallKind::Open);
    }
    let told = is_told(&sources);
    match doings.builds() {
        true => {
            sources.extend(told.then(|| TOLD.to_owned()));
            Some(CallKind::Made(sources))
        }
        false if is_known(&sources) => None,
        false => Some(if told { CallKind::Told } else { CallKind::Open }),
    }
}

/// Returns the tokens up to a comma that is not within parentheses.
fn first_argument(called: &[TextToken]) -> &[TextToken] {
    let mut depth = 0;
    let is_end = |token: &TextToken| {
        match token {
            Sign('(' | '[') => depth += 1,
            Sign(')' | ']') => depth -= 1,
            Word(_) | Sign(_) => {}
        }
        depth == 0 && *token == Sign(',')
    };
    &called[..called.iter().position(is_end).unwrap_or(called.len())]
}
