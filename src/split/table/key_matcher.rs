//! Which rows may be copied, decided by the bytes of their shard-by column: the moving keys, in the binary form of
//! their type.

use crate::agent::shape::Column;
use crate::agent::types::TypeFamily;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use shardmaster_client::shard_for;
use std::collections::HashSet;
use std::num::NonZeroU32;

/// The greatest number of bytes of a value that an error shows.
const SHOWN: usize = 100;

type ValueBound = Option<Vec<u8>>;

/// The moving keys, as the bytes of their values.
#[derive(Debug)]
enum MeshKeys {
    Listed(HashSet<Vec<u8>>),
    Buckets {
        count: NonZeroU32,
        buckets: HashSet<u32>,
    },
    /// Ranges from one bound to before the other. A bound is `None` if it is open.
    Ranges(Vec<(ValueBound, ValueBound)>),
}

/// The filter for a table's rows; it is the same for each of its COPYs.
#[derive(Debug)]
pub struct KeyMatcher {
    of: Ordered,
    keys: MeshKeys,
    /// The position of the shard-by column among those that are sent.
    position: usize,
}

impl KeyMatcher {
    /// Returns the filter for a column that is sent at this position, in binary form. Returns None if the bytes do not
    /// suffice, so that the target decides.
    pub fn new(scope: &Scope, column: &Column, position: usize) -> Option<KeyMatcher> {
        let is_plain = column.type_name == column.base && column.builtin;
        if !is_plain || column.generated.is_some() {
            return None;
        }
        let of = match column.family()? {
            TypeFamily::Integer => Ordered::BigInt,
            // Other types ignore trailing blanks.
            TypeFamily::Text if matches!(column.base.as_str(), "text" | "character varying") => Ordered::Text,
            TypeFamily::Uuid => Ordered::Uuid,
            TypeFamily::Text | TypeFamily::Numeric | TypeFamily::Enum(_) => return None,
        };
        KeyMatcher::of(scope, of, position)
    }

    /// Returns the filter for keys of a type, whatever column they are in.
    pub fn of(scope: &Scope, of: Ordered, position: usize) -> Option<KeyMatcher> {
        Some(KeyMatcher { of, keys: keys(scope, of)?, position })
    }

    /// Returns the column of a COPY that holds the key, from 0.
    pub fn position(&self) -> usize {
        self.position
    }

    pub fn holds(&self, value: &[u8]) -> bool {
        let is_sorted = |is_in: &dyn Fn(Vec<u8>) -> bool| self.sorted(value).is_some_and(is_in);
        match &self.keys {
            MeshKeys::Listed(keys) => is_sorted(&|sorted| keys.contains(&sorted)),
            MeshKeys::Ranges(ranges) => is_sorted(&|sorted| {
                ranges.iter().any(|(lower, upper)| {
                    lower.as_ref().is_none_or(|lower| *lower <= sorted)
                        && upper.as_ref().is_none_or(|upper| sorted < *upper)
                })
            }),
            MeshKeys::Buckets { count, buckets } => {
                self.bucket(value, *count).is_some_and(|bucket| buckets.contains(&bucket))
            }
        }
    }

    /// Whether a value, as its type writes it, is among the keys.
    pub fn holds_text(&self, text: &str) -> bool {
        match self.of {
            Ordered::BigInt => text.parse::<i64>().is_ok_and(|number| self.holds(&number.to_be_bytes())),
            Ordered::Text => self.holds(text.as_bytes()),
            Ordered::Uuid => uuid(text).is_some_and(|bytes| self.holds(&bytes)),
        }
    }

    /// Returns the key in the form of `Ordered::sort_bytes`.
    fn sorted(&self, value: &[u8]) -> Option<Vec<u8>> {
        match self.of {
            Ordered::BigInt => Some((number(value)? ^ i64::MIN).to_be_bytes().to_vec()),
            Ordered::Text | Ordered::Uuid => Some(value.to_vec()),
        }
    }

    fn bucket(&self, value: &[u8], count: NonZeroU32) -> Option<u32> {
        match self.of {
            Ordered::BigInt => Some(shard_for(number(value)?, count)),
            Ordered::Text => Some(shard_for(std::str::from_utf8(value).ok()?, count)),
            Ordered::Uuid => Some(shard_for(<[u8; 16]>::try_from(value).ok()?, count)),
        }
    }

    pub fn shown(&self, value: &[u8]) -> String {
        match self.of {
            Ordered::BigInt => number(value).map_or_else(String::new, |number| number.to_string()),
            Ordered::Text => String::from_utf8_lossy(&value[..value.len().min(SHOWN)]).into_owned(),
            Ordered::Uuid => value.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn keys(scope: &Scope, of: Ordered) -> Option<MeshKeys> {
    Some(match scope {
        Scope::Keys(keys) if keys.iter().all(|key| of.is_canonical(key)) => {
            MeshKeys::Listed(keys.iter().map(|key| of.sort_bytes(key)).collect())
        }
        Scope::Buckets { of: hashed, count, buckets } if *hashed == of => MeshKeys::Buckets {
            count: *count,
            buckets: buckets.iter().map(|bucket| bucket.parse().ok()).collect::<Option<_>>()?,
        },
        Scope::Ranges { of: ordered, ranges } if *ordered == of => {
            let bytes = |bound: &Option<String>| bound.as_ref().map(|key| of.sort_bytes(key));
            MeshKeys::Ranges(ranges.iter().map(|range| (bytes(&range.lower), bytes(&range.upper))).collect())
        }
        Scope::Keys(_) | Scope::Buckets { .. } | Scope::Ranges { .. } => return None,
    })
}

/// Parses a uuid as the server writes it: 32 digits in five groups.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits = text.replace('-', "");
    (text.len() == 36 && digits.len() == 32 && digits.is_ascii()).then_some(())?;
    let mut bytes = [0; 16];
    for (byte, at) in bytes.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Reads a number of two, four or eight bytes.
fn number(value: &[u8]) -> Option<i64> {
    match value.len() {
        2 => Some(i16::from_be_bytes(value.try_into().ok()?).into()),
        4 => Some(i32::from_be_bytes(value.try_into().ok()?).into()),
        8 => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::interval::Interval;

    #[test]
    fn texts_are_held_to_what_their_bytes_are() {
        let matcher = |keys: &[&str], of| {
            KeyMatcher::of(&Scope::Keys(keys.iter().map(|key| (*key).to_owned()).collect()), of, 0).unwrap()
        };
        let numbers = matcher(&["-7", "300"], Ordered::BigInt);
        for (text, is_in) in
            [("-7", true), ("300", true), ("7", false), ("300 ", false), ("", false), ("3e2", false)]
        {
            assert_eq!(numbers.holds_text(text), is_in, "{text:?}");
        }
        let texts = matcher(&["moves", ""], Ordered::Text);
        for (text, is_in) in [("moves", true), ("", true), ("moves ", false), ("Moves", false)] {
            assert_eq!(texts.holds_text(text), is_in, "{text:?}");
        }
        let uuid = "0123abcd-4567-89ab-cdef-0123456789ab";
        let uuids = matcher(&[uuid], Ordered::Uuid);
        assert!(uuids.holds_text(uuid));
        for text in ["0123abcd-4567-89ab-cdef-0123456789ac", "0123abcd456789abcdef0123456789ab", "ü", ""] {
            assert!(!uuids.holds_text(text), "{text:?}");
        }
        let range = Interval { lower: Some("3".into()), upper: Some("9".into()) };
        let ranged =
            KeyMatcher::of(&Scope::Ranges { of: Ordered::BigInt, ranges: vec![range] }, Ordered::BigInt, 0);
        let ranged = ranged.unwrap();
        assert_eq!(["2", "3", "8", "9"].map(|text| ranged.holds_text(text)), [false, true, true, false]);
    }
}
