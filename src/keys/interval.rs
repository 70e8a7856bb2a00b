//! Half-open intervals of keys, which the entries of a range keyspace cover.

use super::key_type::KeyType;
use super::ordered::Ordered;
use crate::words::hex;
use serde_json::Value;
use std::cmp::Ordering;

/// A bound in canonical form; `None` if it is open.
pub type Bound = Option<String>;

/// Bounds with no key between them, in the form that users write.
#[derive(Debug)]
pub struct Empty(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub lower: Bound,
    pub upper: Bound,
}

/// The bytes of an interval's bounds, after the name of its keyspace.
pub struct KeySpan {
    pub lower: Vec<u8>,
    pub upper: Vec<u8>,
}

impl KeySpan {
    pub fn lower_hex(&self) -> String {
        hex(&self.lower)
    }

    pub fn upper_hex(&self) -> String {
        hex(&self.upper)
    }
}

/// Returns the position of a key, or of the lowest key for None, among the spans of a keyspace.
pub fn position(keyspace: &str, of: Ordered, key: Option<&str>) -> Vec<u8> {
    let mut bytes = keyspace.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend(key.map(|key| of.sort_bytes(key)).unwrap_or_default());
    bytes
}

impl Interval {
    /// Creates an interval from a caller's bounds.
    pub fn new(key_type: KeyType, lower: Option<&str>, upper: Option<&str>) -> Result<Interval, Empty> {
        let canonical = |bound: &str| key_type.canonical(bound).into_owned();
        // No text sorts before the empty one, so it is an open lower bound.
        let lower = lower.map(canonical).filter(|bound| !bound.is_empty());
        let interval = Interval { lower, upper: upper.map(canonical) };
        let empty = match key_type.ordered() {
            Some(of) => interval.is_empty(of),
            None => true,
        };
        if empty {
            return Err(Empty(interval.shown()));
        }
        Ok(interval)
    }

    pub fn is_empty(&self, of: Ordered) -> bool {
        match (&self.lower, &self.upper) {
            (_, None) => false,
            (None, Some(upper)) => of.sort_bytes(upper).is_empty(),
            (Some(lower), Some(upper)) => of.sort_bytes(lower) >= of.sort_bytes(upper),
        }
    }

    pub fn span(&self, keyspace: &str, of: Ordered) -> KeySpan {
        let lower = position(keyspace, of, self.lower.as_deref());
        let upper = match &self.upper {
            Some(upper) => position(keyspace, of, Some(upper)),
            None => {
                let mut behind_all = keyspace.as_bytes().to_vec();
                behind_all.push(1);
                behind_all
            }
        };
        KeySpan { lower, upper }
    }

    /// Returns the entry's name: `[10,20)`, with texts in quotes and open bounds left out.
    pub fn name(&self, of: Ordered) -> String {
        let show = |bound: &Bound| match bound {
            None => String::new(),
            Some(text) if of == Ordered::Text => Value::from(text.as_str()).to_string(),
            Some(text) => text.clone(),
        };
        format!("[{},{})", show(&self.lower), show(&self.upper))
    }

    fn shown(&self) -> String {
        let show = |bound: &Bound| bound.clone().unwrap_or_default();
        format!("[{},{})", show(&self.lower), show(&self.upper))
    }

    /// Parses an entry's name.
    pub fn parse(name: &str, of: Ordered) -> Option<Interval> {
        let inner = name.strip_prefix('[')?.strip_suffix(')')?;
        if of != Ordered::Text {
            let (lower, upper) = inner.split_once(',')?;
            let bound = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            return Some(Interval { lower: bound(lower), upper: bound(upper) });
        }
        let (lower, rest) = text_bound(inner)?;
        let (upper, rest) = text_bound(rest.strip_prefix(',')?)?;
        rest.is_empty().then_some(Interval { lower, upper })
    }

    /// Returns the parts of this interval below and above another one.
    pub fn without(&self, other: &Interval, of: Ordered) -> Vec<Interval> {
        let below = Interval { lower: self.lower.clone(), upper: lower_of(&self.upper, &other.lower, of) };
        let above = Interval { lower: higher_of(&self.lower, &other.upper, of), upper: self.upper.clone() };
        let mut parts = Vec::new();
        if other.lower.is_some() && !below.is_empty(of) {
            parts.push(below);
        }
        if other.upper.is_some() && !above.is_empty(of) {
            parts.push(above);
        }
        parts
    }

    /// Returns the parts of this interval outside all of the others, or None if they do not overlap it.
    pub fn without_all(self, others: &[Interval], of: Ordered) -> Option<Vec<Interval>> {
        let mut left = vec![self.clone()];
        for other in others {
            left = left.iter().flat_map(|part| part.without(other, of)).collect();
        }
        (left != [self]).then_some(left)
    }

    /// Returns the part that both contain.
    pub fn intersection(&self, other: &Interval, of: Ordered) -> Option<Interval> {
        let both = Interval {
            lower: higher_of(&self.lower, &other.lower, of),
            upper: lower_of(&self.upper, &other.upper, of),
        };
        (!both.is_empty(of)).then_some(both)
    }
}

/// Returns the lower of two upper bounds; an open one is above all others.
fn lower_of(a: &Bound, b: &Bound, of: Ordered) -> Bound {
    match (a, b) {
        (None, bound) | (bound, None) => bound.clone(),
        (Some(a), Some(b)) => Some(if compare(a, b, of) == Ordering::Less { a } else { b }.clone()),
    }
}

/// Returns the higher of two lower bounds; an open one is below all others.
fn higher_of(a: &Bound, b: &Bound, of: Ordered) -> Bound {
    match (a, b) {
        (None, bound) | (bound, None) => bound.clone(),
        (Some(a), Some(b)) => Some(if compare(a, b, of) == Ordering::Greater { a } else { b }.clone()),
    }
}

fn compare(a: &str, b: &str, of: Ordered) -> Ordering {
    of.sort_bytes(a).cmp(&of.sort_bytes(b))
}

/// Parses a JSON string, or nothing, and returns the rest.
fn text_bound(text: &str) -> Option<(Bound, &str)> {
    if !text.starts_with('"') {
        return Some((None, text));
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let bound = values.next()?.ok()?;
    let rest = text.get(values.byte_offset()..)?;
    Some((Some(bound), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::hold;
    use proptest::prelude::*;

    fn text(lower: Option<&str>, upper: Option<&str>) -> Interval {
        Interval { lower: lower.map(str::to_owned), upper: upper.map(str::to_owned) }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for interval in [
            text(None, None),
            text(Some("a"), None),
            text(None, Some("a,\"b\")")),
            text(Some("[a,"), Some("ü\n")),
        ] {
            let name = interval.name(Ordered::Text);
            assert_eq!(Interval::parse(&name, Ordered::Text), Some(interval), "{name}");
        }
        let number = text(Some("-5"), None);
        assert_eq!(number.name(Ordered::BigInt), "[-5,)");
        assert_eq!(Interval::parse("[-5,)", Ordered::BigInt), Some(number));
        for wrong in ["", "[", "[1)", "(1,2)", "[1,2]"] {
            assert_eq!(Interval::parse(wrong, Ordered::BigInt), None);
        }
        assert_eq!(Interval::parse("[\"a\",\"b\"x)", Ordered::Text), None);
    }

    #[test]
    fn what_is_taken_out_of_the_middle_leaves_both_ends() {
        let of = Ordered::Text;
        let all = text(Some("b"), Some("y"));
        assert_eq!(
            all.without(&text(Some("f"), Some("k")), of),
            [text(Some("b"), Some("f")), text(Some("k"), Some("y"))]
        );
        assert_eq!(all.without(&text(None, Some("k")), of), [text(Some("k"), Some("y"))]);
        assert_eq!(all.without(&text(Some("a"), Some("z")), of), []);
        assert_eq!(all.without(&text(None, None), of), []);
        assert_eq!(text(None, None).without(&text(Some("f"), None), of), [text(None, Some("f"))]);
    }

    #[test]
    fn what_is_in_both() {
        let of = Ordered::Text;
        let both = |a: &Interval, b: &Interval| a.intersection(b, of);
        assert_eq!(both(&text(None, Some("m")), &text(Some("f"), None)), Some(text(Some("f"), Some("m"))));
        assert_eq!(both(&text(None, Some("f")), &text(Some("f"), None)), None);
        assert_eq!(both(&text(None, None), &text(None, None)), Some(text(None, None)));
    }

    #[test]
    fn spans_of_two_keyspaces_do_not_touch() {
        let of = Ordered::Text;
        let (a, ab) = (text(None, None).span("a", of), text(None, None).span("ab", of));
        assert!(a.upper <= ab.lower || ab.upper <= a.lower);
        assert!(position("a", of, Some("\u{10ffff}")) < a.upper);
    }

    /// Generates a type, and keys of it that are often the same or adjacent.
    fn keys(count: usize) -> impl Strategy<Value = (Ordered, Vec<Option<String>>)> {
        let list = |key: BoxedStrategy<String>| proptest::collection::vec(proptest::option::of(key), count);
        let number = prop_oneof![-3..=3_i64, any::<i64>()].prop_map(|number| number.to_string());
        let word = prop_oneof!["[ab]{1,3}", "[\"\\\\,)\\[ü\n]{1,3}", ".{1,4}"];
        prop_oneof![(Just(Ordered::BigInt), list(number.boxed())), (Just(Ordered::Text), list(word.boxed())),]
    }

    fn contains(interval: &Interval, key: &str, of: Ordered) -> bool {
        let bytes = |bound: &Bound| bound.as_deref().map(|bound| of.sort_bytes(bound));
        bytes(&interval.lower).is_none_or(|lower| lower <= of.sort_bytes(key))
            && bytes(&interval.upper).is_none_or(|upper| of.sort_bytes(key) < upper)
    }

    #[test]
    fn every_name_is_read_as_it_was_written() {
        hold(keys(2), |(of, bounds)| {
            let interval = text(bounds[0].as_deref(), bounds[1].as_deref());
            prop_assert_eq!(Interval::parse(&interval.name(of), of), Some(interval));
            Ok(())
        });
        hold(".{0,8}", |name| {
            // The text may be anything.
            let _ = (Interval::parse(&name, Ordered::Text), Interval::parse(&name, Ordered::BigInt));
            Ok(())
        });
    }

    /// Checks removed parts, intersections and positions with every possible key.
    #[test]
    fn a_key_is_where_the_intervals_say() {
        hold(keys(7), |(of, given)| {
            let Some(key) = given[6].as_deref() else { return Ok(()) };
            let [one, other, third] =
                [0, 2, 4].map(|at| text(given[at].as_deref(), given[at + 1].as_deref()));
            prop_assume!(!one.is_empty(of) && !other.is_empty(of) && !third.is_empty(of));
            let is_in = |interval: &Interval| contains(interval, key, of);
            let parts = one.without(&other, of);
            prop_assert_eq!(
                parts.iter().filter(|part| is_in(part)).count(),
                usize::from(is_in(&one) && !is_in(&other))
            );
            prop_assert!(parts.iter().all(|part| !part.is_empty(of)));
            let both = one.intersection(&other, of);
            prop_assert_eq!(both.is_some_and(|both| is_in(&both)), is_in(&one) && is_in(&other));
            let left =
                one.clone().without_all(&[other.clone(), third.clone()], of).unwrap_or(vec![one.clone()]);
            let stays = is_in(&one) && !is_in(&other) && !is_in(&third);
            prop_assert_eq!(left.iter().filter(|part| is_in(part)).count(), usize::from(stays));
            let (span, place) = (one.span("of", of), position("of", of, Some(key)));
            prop_assert_eq!(span.lower <= place && place < span.upper, is_in(&one));
            Ok(())
        });
    }
}
