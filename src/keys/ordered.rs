//! How keys of hash and range keyspaces are hashed and ordered. Keys are in canonical form, which their type's input
//! function has produced.

use crate::named_enum::named_enum;
use shardmaster_client::shard_for;
use std::num::NonZeroU32;

named_enum! {
    pub enum Ordered {
        BigInt = "bigint",
        /// Ordered by its bytes in UTF-8.
        Text = "text",
        Uuid = "uuid",
    }
}

/// A canonical number has no other form; other texts were refused before.
fn number(key: &str) -> i64 {
    key.parse().unwrap_or_default()
}

fn uuid(key: &str) -> [u8; 16] {
    u128::from_str_radix(&key.replace('-', ""), 16).unwrap_or_default().to_be_bytes()
}

impl Ordered {
    /// Whether a key is in the one form that its type writes; false if this is not obvious.
    pub fn is_canonical(self, key: &str) -> bool {
        match self {
            Ordered::BigInt => {
                let digits = key.strip_prefix('-').unwrap_or(key);
                key.parse::<i64>().is_ok()
                    && digits.bytes().all(|byte| byte.is_ascii_digit())
                    && (!digits.starts_with('0') || key == "0")
            }
            Ordered::Text => true,
            Ordered::Uuid => {
                key.len() == 36
                    && key.bytes().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                    })
            }
        }
    }

    /// Returns the bucket of a key.
    pub fn bucket(self, key: &str, buckets: NonZeroU32) -> u32 {
        match self {
            Ordered::BigInt => shard_for(number(key), buckets),
            Ordered::Text => shard_for(key, buckets),
            Ordered::Uuid => shard_for(uuid(key), buckets),
        }
    }

    /// Returns bytes that sort as the keys do.
    pub fn sort_bytes(self, key: &str) -> Vec<u8> {
        match self {
            // The sign bit is inverted, so that the lowest number comes first.
            Ordered::BigInt => (number(key) ^ i64::MIN).to_be_bytes().to_vec(),
            Ordered::Text => key.as_bytes().to_vec(),
            Ordered::Uuid => uuid(key).to_vec(),
        }
    }

    /// Returns a key in the middle between `lower` (included) and `upper` (excluded), where None is an open bound.
    pub fn middle(self, lower: Option<&str>, upper: Option<&str>) -> Option<String> {
        match self {
            Ordered::BigInt => {
                let lower = lower.map_or(i128::from(i64::MIN), |key| number(key).into());
                let upper = upper.map_or(i128::from(i64::MAX) + 1, |key| number(key).into());
                // The middle is rounded down, also below zero, because the upper bound is excluded.
                Some((lower + upper).div_euclid(2).to_string())
            }
            Ordered::Uuid => {
                let lower = u128::from_be_bytes(lower.map_or([0; 16], uuid));
                let upper = u128::from_be_bytes(upper.map_or([0xff; 16], uuid));
                let hex = format!("{:032x}", lower.midpoint(upper));
                Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
            }
            Ordered::Text => text_between(lower.unwrap_or_default(), upper),
        }
    }
}

/// The range of characters in keys that people write; if a bound contains others, all characters are used.
const PRINTABLE: (u32, u32) = (0x20, 0x7f);
const ALL: (u32, u32) = (0x01, 0x11_0000);

/// Keeps the common prefix of both, then takes the character in the middle; if there is none, it continues after the
/// lower one.
fn text_between(lower: &str, upper: Option<&str>) -> Option<String> {
    let is_printable = |text: &str| text.chars().all(|c| (PRINTABLE.0..PRINTABLE.1).contains(&u32::from(c)));
    let (first, end) = if is_printable(lower) && upper.is_none_or(is_printable) { PRINTABLE } else { ALL };
    let (mut lower, mut upper) = (lower.chars(), upper.map(str::chars));
    let mut between = String::new();
    loop {
        let low = lower.next().map(u32::from);
        // After the end of the lower bound, everything is above it; without an upper bound, everything is below.
        let high = match upper.as_mut() {
            Some(chars) => u32::from(chars.next()?),
            None => end,
        };
        let from = low.unwrap_or(first);
        // Surrogates are not characters.
        let middle = match from.midpoint(high) {
            0xd800..=0xdfff => 0xe000,
            middle => middle,
        };
        if middle < high && (middle > from || low.is_none()) {
            between.push(char::from_u32(middle)?);
            return Some(between);
        }
        between.push(char::from_u32(from)?);
        if from < high {
            upper = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::hold;
    use proptest::prelude::*;

    #[test]
    fn bytes_sort_as_the_keys_do() {
        let numbers = ["-9223372036854775808", "-1", "0", "1", "9223372036854775807"];
        let texts = ["", "A", "a", "aa", "b", "é", "\u{10ffff}"];
        let uuids = [
            "00000000-0000-0000-0000-000000000000",
            "7fffffff-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ];
        for (of, keys) in
            [(Ordered::BigInt, &numbers[..]), (Ordered::Text, &texts[..]), (Ordered::Uuid, &uuids[..])]
        {
            let bytes: Vec<Vec<u8>> = keys.iter().map(|key| of.sort_bytes(key)).collect();
            assert!(bytes.is_sorted() && bytes.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
        }
    }

    #[test]
    fn other_forms_of_a_key_are_not_canonical() {
        for key in ["0", "-1", "42", "-9223372036854775808"] {
            assert!(Ordered::BigInt.is_canonical(key), "{key}");
        }
        for key in ["", "-", "-0", "007", "+1", " 1", "1 ", "9223372036854775808", "x"] {
            assert!(!Ordered::BigInt.is_canonical(key), "{key:?}");
        }
        assert!(Ordered::Uuid.is_canonical("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"));
        assert!(!Ordered::Uuid.is_canonical("A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11"));
        assert!(!Ordered::Uuid.is_canonical("a0eebc999c0b4ef8bb6d6bb9bd380a11"));
    }

    #[test]
    fn the_middle_lies_between() {
        let number = |lower, upper| Ordered::BigInt.middle(lower, upper).unwrap();
        assert_eq!(number(None, None), "0");
        assert_eq!(number(Some("10"), Some("20")), "15");
        assert_eq!(
            number(Some("-9223372036854775808"), Some("-9223372036854775806")),
            "-9223372036854775807"
        );
        assert_eq!(number(Some("9223372036854775806"), None), "9223372036854775807");
        assert_eq!(number(Some("-1"), Some("0")), "-1");
        assert_eq!(Ordered::Uuid.middle(None, None).unwrap(), "7fffffff-ffff-ffff-ffff-ffffffffffff");
        for (lower, upper) in [
            ("", None),
            ("a", None),
            ("a", Some("c")),
            ("a", Some("b")),
            ("a", Some("a!")),
            ("abc", Some("abd")),
            ("ab~", Some("ac")),
            ("", Some("a")),
            ("é", Some("ê")),
            ("\u{d7ff}", Some("\u{e001}")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a9", Some("b")),
        ] {
            let middle = text_between(lower, upper).unwrap_or_else(|| panic!("{lower:?} {upper:?}"));
            assert!(
                middle.as_str() > lower && upper.is_none_or(|upper| middle.as_str() < upper),
                "{lower:?} {middle:?} {upper:?}"
            );
        }
        assert_eq!(text_between("a", Some("a ")), None);
    }

    #[test]
    fn all_keys_sort_by_their_bytes_and_have_one_form() {
        let near = prop_oneof![-3..=3_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)];
        hold((near.clone(), near), |(a, b)| {
            let bytes = |number: i64| Ordered::BigInt.sort_bytes(&number.to_string());
            prop_assert_eq!(bytes(a).cmp(&bytes(b)), a.cmp(&b));
            prop_assert!(Ordered::BigInt.is_canonical(&a.to_string()));
            Ok(())
        });
        hold("[-+0]{0,2}[0-9]{0,20}", |text| {
            let is_one = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
            prop_assert_eq!(Ordered::BigInt.is_canonical(&text), is_one);
            Ok(())
        });
        hold(any::<(u128, u128)>(), |(a, b)| {
            let bytes = |number| Ordered::Uuid.sort_bytes(&uuid_text(number));
            prop_assert_eq!(bytes(a).cmp(&bytes(b)), a.cmp(&b));
            prop_assert!(Ordered::Uuid.is_canonical(&uuid_text(a)));
            Ok(())
        });
    }

    #[test]
    fn every_middle_lies_between() {
        let text = prop_oneof!["[ab !~]{0,3}", "[a\u{1}\u{d7ff}\u{e000}\u{10ffff}]{0,3}", "[^\\u{0}]{0,4}"];
        hold((text.clone(), proptest::option::of(text)), |(lower, upper)| {
            prop_assume!(upper.as_ref().is_none_or(|upper| lower < *upper));
            if let Some(middle) = Ordered::Text.middle(Some(&lower), upper.as_deref()) {
                prop_assert!(lower < middle, "{middle:?} is not above {lower:?}");
                prop_assert!(upper.is_none_or(|upper| middle < upper), "{middle:?}");
            }
            Ok(())
        });
        let number = prop_oneof![-3..=3_i64, any::<i64>(), i64::MAX - 3..=i64::MAX];
        hold((number.clone(), proptest::option::of(number)), |(lower, upper)| {
            prop_assume!(upper.is_none_or(|upper| lower < upper));
            let (low, high) = (lower.to_string(), upper.map(|upper| upper.to_string()));
            let middle: i64 = Ordered::BigInt.middle(Some(&low), high.as_deref()).unwrap().parse().unwrap();
            prop_assert!(lower <= middle && upper.is_none_or(|upper| middle < upper), "{middle}");
            Ok(())
        });
        hold(any::<(u128, u128)>(), |(a, b)| {
            let (lower, upper) = (a.min(b), a.max(b));
            prop_assume!(lower < upper);
            let middle = Ordered::Uuid.middle(Some(&uuid_text(lower)), Some(&uuid_text(upper))).unwrap();
            prop_assert!(uuid_text(lower) <= middle && middle < uuid_text(upper), "{middle}");
            Ok(())
        });
    }

    fn uuid_text(number: u128) -> String {
        let hex = format!("{number:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}
