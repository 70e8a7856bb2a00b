//! Sequences that an application makes for each of its tenants, and draws from by names that it composes: no
//! dependency and no text names them. They are recognized by the key in their names, as a word of its own.

use super::draw::SequenceName;
use crate::catalog::routing;
use crate::catalog::split::Plan;
use crate::keys::interval::position;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::server::txn::in_one;
use crate::words::some_of;
use std::collections::{HashMap, HashSet};

/// The greatest number of a shard's names without a known user that are checked.
pub const MOST: usize = 100_000;
/// The greatest number of words of a name that are combined.
const WORDS: usize = 16;
/// The greatest number of names that are checked for other keys.
const MOST_LEFT: usize = 1_000;
/// The least length of a name without its key that is meaningful.
const SHORTEST: usize = 3;

/// Returns a text in the form in which a name and its key agree: letters and digits, in lower case.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Checks whether a name contains a moving key.
pub struct ByKey<'a> {
    scope: &'a Scope,
    keys: HashSet<String>,
}

impl<'a> ByKey<'a> {
    pub fn new(scope: &'a Scope) -> ByKey<'a> {
        let mut keys = HashSet::new();
        for key in scope.keys().unwrap_or_default() {
            let key = plain(key);
            // A uuid is written without its dashes, too.
            let without: String = key.split('_').collect();
            if without.len() == 32 && without.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                keys.insert(without);
            }
            keys.insert(key.trim_matches('_').to_owned());
        }
        keys.remove("");
        ByKey { scope, keys }
    }

    pub fn holds(&self, name: &str) -> bool {
        parts(name, |part| self.is_key(part))
    }

    /// Whether the schema contains the key, for applications with a schema for each key.
    fn is_in_schema(&self, named: &SequenceName) -> bool {
        self.holds(&named.schema)
    }

    /// Whether a part is a key. With buckets and ranges every word of a text could be a key, so only numbers and uuids
    /// are recognized.
    fn is_key(&self, part: &str) -> bool {
        match self.scope {
            Scope::Keys(_) => self.keys.contains(part),
            Scope::Buckets { of, count, buckets } => {
                spelled(*of, part).is_some_and(|key| buckets.contains(&of.bucket(&key, *count).to_string()))
            }
            Scope::Ranges { of, ranges } => spelled(*of, part).is_some_and(|key| {
                let at = |key: Option<&str>| position("", *of, key);
                let key = at(Some(&key));
                ranges.iter().any(|range| {
                    at(range.lower.as_deref()) <= key
                        && range.upper.as_deref().is_none_or(|upper| key < at(Some(upper)))
                })
            }),
        }
    }

    /// Whether words cannot be recognized as keys: with buckets and ranges of texts.
    pub fn is_blind(&self) -> bool {
        let of = match self.scope {
            Scope::Keys(_) => return false,
            Scope::Buckets { of, .. } | Scope::Ranges { of, .. } => *of,
        };
        of == Ordered::Text
    }

    /// Divides a shard's sequences into those whose names contain a moving key, and the others.
    pub fn split(&self, named: Vec<SequenceName>) -> [Vec<SequenceName>; 2] {
        let (of_keys, others) = named.into_iter().partition(|sequence| self.holds(&sequence.relname));
        [of_keys, others]
    }
}

/// Recognizes sequences of a key that stays.
pub struct OtherKeys {
    /// The parts of moving keys' sequence names before and after the key.
    patterns: Vec<(String, String)>,
    /// The names that contain a key that stays.
    of_staying: HashSet<String>,
}

impl OtherKeys {
    /// `moving`: names of sequences that contain a moving key.
    pub fn of<'a>(plan: &Plan, moving: impl Iterator<Item = &'a str>, left: &[SequenceName]) -> OtherKeys {
        let by = ByKey::new(&plan.scope);
        let pattern = |name: &str| {
            let name = plain(name);
            let mut key = None;
            parts(&name, |part| {
                key = by.is_key(part).then(|| part.to_owned());
                key.is_some()
            });
            let (before, behind) = name.split_once(key?.as_str())?;
            (before.len() + behind.len() >= SHORTEST).then(|| (before.to_owned(), behind.to_owned()))
        };
        let patterns = moving.filter_map(pattern).collect();
        let of_staying = match &plan.scope {
            Scope::Keys(_) => {
                let left = left.iter().take(MOST_LEFT).filter(|named| !by.is_in_schema(named));
                of_known_keys(plan, left)
            }
            // The keys are not known here.
            Scope::Buckets { .. } | Scope::Ranges { .. } => HashSet::new(),
        };
        OtherKeys { patterns, of_staying }
    }

    pub fn have(&self, named: &SequenceName) -> bool {
        let name = plain(&named.relname);
        let is_like = |(before, behind): &(String, String)| {
            name.strip_prefix(before.as_str())
                .is_some_and(|rest| rest.strip_suffix(behind.as_str()).is_some_and(|key| !key.is_empty()))
        };
        self.of_staying.contains(&named.oid) || self.patterns.iter().any(is_like)
    }
}

/// Returns those whose names contain a key that is routed: its own sequence is copied when it moves.
fn of_known_keys<'a>(plan: &Plan, left: impl Iterator<Item = &'a SequenceName>) -> HashSet<String> {
    let mut by_part: HashMap<String, Vec<&str>> = HashMap::new();
    for named in left {
        parts(&named.relname, |part| {
            for part in [part.to_owned(), part.replace('_', "-")] {
                by_part.entry(part).or_default().push(&named.oid);
            }
            false
        });
    }
    let asked: Vec<String> = by_part.keys().cloned().collect();
    let known = in_one(|| routing::current(&plan.keyspace, &asked));
    let moving = plan.scope.keys().unwrap_or_default();
    let staying = known.keys().filter(|key| !moving.iter().any(|moves| *moves == **key));
    let oids = staying.filter_map(|key| by_part.get(key)).flatten();
    oids.map(|oid| (*oid).to_owned()).collect()
}

/// Whether one word of a name, or several consecutive ones, satisfy a condition.
fn parts(name: &str, mut is: impl FnMut(&str) -> bool) -> bool {
    let name = plain(name);
    let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).take(WORDS).collect();
    (0..words.len()).any(|from| {
        let mut part = String::new();
        words[from..].iter().any(|word| {
            if !part.is_empty() {
                part.push('_');
            }
            part.push_str(word);
            is(&part)
        })
    })
}

/// Returns a word as the key that it would be, or None if it cannot be one.
fn spelled(of: Ordered, part: &str) -> Option<String> {
    let key = match of {
        Ordered::Text => return None,
        Ordered::Uuid if part.len() == 32 && part.is_ascii() => {
            [&part[..8], &part[8..12], &part[12..16], &part[16..20], &part[20..]].join("-")
        }
        Ordered::Uuid => part.replace('_', "-"),
        Ordered::BigInt => part.to_owned(),
    };
    of.is_canonical(&key).then_some(key)
}

/// Lists names for people: some of them, and how many more there are.
pub fn examples(named: &[SequenceName]) -> String {
    let names = named.iter().map(|sequence| format!("{}.{}", sequence.schema, sequence.relname));
    some_of(&names.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::interval::Interval;
    use std::num::NonZeroU32;

    #[test]
    fn a_key_is_a_word_of_its_own() {
        let scope =
            Scope::Keys(vec!["4".into(), "Acme-Corp".into(), "9f0c2b1e-7a64-4c1f-8f6a-0e3d5b7c9a11".into()]);
        let by = ByKey::new(&scope);
        for name in [
            "conv_seq_4",
            "4_seq",
            "seq-4-x",
            "orders_acme_corp_seq",
            "seq_9f0c2b1e_7a64_4c1f_8f6a_0e3d5b7c9a11",
            "seq_9f0c2b1e7a644c1f8f6a0e3d5b7c9a11",
        ] {
            assert!(by.holds(name), "{name}");
        }
        for name in ["seq_42", "seq_14", "seq4", "acme_seq", "conv_seq", ""] {
            assert!(!by.holds(name), "{name}");
        }
    }

    #[test]
    fn numbers_tell_of_buckets_and_ranges() {
        let of = Ordered::BigInt;
        let ranges = vec![Interval { lower: Some("10".into()), upper: Some("20".into()) }];
        let by_range = Scope::Ranges { of, ranges };
        let by = ByKey::new(&by_range);
        assert!(by.holds("seq_10") && by.holds("seq_19") && !by.holds("seq_20") && !by.holds("seq_9"));
        let count = NonZeroU32::new(8).unwrap();
        let bucket = of.bucket("4", count).to_string();
        let by_bucket = Scope::Buckets { of, count, buckets: vec![bucket] };
        assert!(ByKey::new(&by_bucket).holds("conv_seq_4"));
        assert!(!ByKey::new(&by_bucket).holds("conv_seq"));
    }
}
