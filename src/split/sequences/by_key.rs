//! Sequences that an application makes for each of its tenants, and draws from by names that it puts together: no dependency and no
//! text names them. What tells is the key in their names, as a word of its own.

use super::draw::Named;
use crate::keys::interval::position;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::words::some_of;
use std::collections::HashSet;

/// Names that no known thing draws from which are looked at; of one shard.
pub const MOST: usize = 100_000;
/// Words of a name that are put together again.
const WORDS: usize = 16;

/// What a name and a key have in common when one is made of the other: letters and digits, in lower case.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Whether a name holds a key that moves.
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
        let name = plain(name);
        let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).take(WORDS).collect();
        (0..words.len()).any(|from| {
            let mut part = String::new();
            words[from..].iter().any(|word| {
                if !part.is_empty() {
                    part.push('_');
                }
                part.push_str(word);
                self.is_key(&part)
            })
        })
    }

    /// Of buckets and ranges each word of a text would be a key: there numbers and uuids alone tell.
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

    /// Whether a word that may be a key says nothing: of buckets and ranges of texts.
    pub fn is_blind(&self) -> bool {
        let of = match self.scope {
            Scope::Keys(_) => return false,
            Scope::Buckets { of, .. } | Scope::Ranges { of, .. } => *of,
        };
        of == Ordered::Text
    }

    /// Those of a shard whose names hold a key that moves, and the others.
    pub fn split(&self, named: Vec<Named>) -> [Vec<Named>; 2] {
        let (of_keys, others) = named.into_iter().partition(|sequence| self.holds(&sequence.relname));
        [of_keys, others]
    }
}

/// A word as the key that it would be; None: it is none.
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

/// Names for people: some of them, and how many there are besides.
pub fn examples(named: &[Named]) -> String {
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
