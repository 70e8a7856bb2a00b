//! By which name a call of nextval() and the like draws: by one that is known, by one that it is told, or by one that a text puts together.

use super::doings::Doings;
use super::tokens::TextToken::{self, Sign, Word};
use super::tokens::words;
use std::collections::BTreeSet;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// Nothing of it is known.
    Open,
    /// A name that the function is told: it is followed where one that is told is known.
    Told,
    /// A name that it puts together, of these words.
    Made(BTreeSet<String>),
    /// Each shard counts its own rows.
    Counted,
}

/// What is known where a call draws.
pub struct Context<'a> {
    /// Sequences that the text names.
    pub named: &'a BTreeSet<String>,
    /// A text of the server's own, of which it knows what that depends on.
    pub by_server: bool,
    /// Names of what it is told.
    pub args: &'a BTreeSet<String>,
    pub text: &'a str,
}

/// What stands for words that a function is told.
pub const TOLD: &str = "$";

/// How a sequence is named that a call draws from; None: as a sequence that is known.
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
    let is_joined = called.windows(2).any(|pair| pair[0] == Sign('|') && pair[1] == Sign('|'));
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

/// Up to a comma that is within no parentheses.
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
