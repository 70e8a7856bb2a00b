//! A filter for rows on their way from source to target: it checks that each belongs to the moving keys, from the
//! bytes of a COPY in its binary form. A target that computed the same for each row would take up to twice as long. An
//! attacker who can change bytes after this check can send the target any statement anyway.
//!
//! The server reads a COPY in the same way: the number of columns of a row, then for each its length and its bytes.
//! Message boundaries have no meaning.

use crate::catalog::split::Plan;
use crate::remote::RemoteError;
use crate::remote::quote::literal;
use crate::split::table::key_matcher::KeyMatcher;
use std::rc::Rc;

/// The first bytes of a COPY in binary form, before the length of the header extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEAD: usize = SIGNATURE.len() + 8;
/// The greatest number of bytes of a key, which is collected before it is checked.
const LONGEST_KEY: usize = 1 << 20;
/// What comes next.
enum NextByte {
    /// The header, whose extension length is not known yet.
    Head,
    /// This many bytes that have no meaning here, then a row or the rest of one.
    Skip(usize, Option<SieveRow>),
    Row,
    /// The length of a value, then the value.
    Length(SieveRow),
    Key(SieveRow, usize),
    End,
}

/// The position within a row: the next column, and how many there are.
#[derive(Clone, Copy)]
struct SieveRow {
    column: usize,
    count: usize,
}

/// A value that does not belong to the moving keys.
#[derive(Debug, PartialEq, Eq)]
pub enum OutOfScope {
    Key(String),
    Null,
    /// The bytes are not a COPY.
    Unreadable,
}

/// The filter of one COPY.
pub struct ScopeFilter {
    matcher: Rc<KeyMatcher>,
    next: NextByte,
    /// The beginning of something whose end has not arrived yet.
    rest: Vec<u8>,
}

impl ScopeFilter {
    pub fn new(matcher: Rc<KeyMatcher>) -> ScopeFilter {
        ScopeFilter { matcher, next: NextByte::Head, rest: Vec::new() }
    }

    /// Checks what the source has sent.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(), OutOfScope> {
        if self.rest.is_empty() {
            let used = self.read(bytes)?;
            self.rest.extend_from_slice(&bytes[used..]);
        } else {
            let mut all = std::mem::take(&mut self.rest);
            all.extend_from_slice(bytes);
            let used = self.read(&all)?;
            all.drain(..used);
            self.rest = all;
        }
        Ok(())
    }

    /// Returns how many of the bytes are consumed.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, OutOfScope> {
        let mut at = 0;
        while at < bytes.len() {
            let Some(used) = self.step(&bytes[at..])? else { break };
            at += used;
        }
        Ok(at)
    }

    /// Returns None if more bytes are needed.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, OutOfScope> {
        let (next, used) = match self.next {
            NextByte::Head => {
                let Some(head) = bytes.get(..HEAD) else { return Ok(None) };
                if !head.starts_with(SIGNATURE) {
                    return Err(OutOfScope::Unreadable);
                }
                let length =
                    usize::try_from(number_at(&head[HEAD - 4..])).map_err(|_| OutOfScope::Unreadable)?;
                (NextByte::Skip(length, None), HEAD)
            }
            NextByte::Skip(left, row) => {
                let used = left.min(bytes.len());
                (if used < left { NextByte::Skip(left - used, row) } else { after(row) }, used)
            }
            NextByte::Row => {
                let Some(&[high, low]) = bytes.get(..2) else { return Ok(None) };
                match i16::from_be_bytes([high, low]) {
                    -1 => (NextByte::End, 2),
                    count => {
                        let count = usize::try_from(count).map_err(|_| OutOfScope::Unreadable)?;
                        if count <= self.matcher.position() {
                            return Err(OutOfScope::Unreadable);
                        }
                        (NextByte::Length(SieveRow { column: 0, count }), 2)
                    }
                }
            }
            NextByte::Length(row) => {
                let Some(length) = bytes.get(..4) else { return Ok(None) };
                let is_key = row.column == self.matcher.position();
                let behind = SieveRow { column: row.column + 1, ..row };
                match number_at(length) {
                    -1 if is_key => return Err(OutOfScope::Null),
                    -1 => (after(Some(behind)), 4),
                    length => {
                        let length = usize::try_from(length).map_err(|_| OutOfScope::Unreadable)?;
                        if is_key && length > LONGEST_KEY {
                            return Err(OutOfScope::Unreadable);
                        }
                        (
                            if is_key {
                                NextByte::Key(behind, length)
                            } else {
                                NextByte::Skip(length, Some(behind))
                            },
                            4,
                        )
                    }
                }
            }
            NextByte::Key(behind, length) => {
                let Some(value) = bytes.get(..length) else { return Ok(None) };
                if !self.matcher.holds(value) {
                    return Err(OutOfScope::Key(self.matcher.shown(value)));
                }
                (after(Some(behind)), length)
            }
            NextByte::End => return Err(OutOfScope::Unreadable),
        };
        self.next = next;
        // An empty item is consumed without reading.
        if let NextByte::Skip(0, row) = self.next {
            self.next = after(row);
        }
        Ok(Some(used))
    }
}

/// Returns the error, worded like the target's own.
pub fn explain(out_of_scope: OutOfScope, plan: &Plan, table: &str) -> RemoteError {
    let (shard, id) = (&plan.source.shard_key, plan.id);
    let (key, what) = match out_of_scope {
        OutOfScope::Key(key) => (Some(key.clone()), format!("key \"{key}\"")),
        OutOfScope::Null => (None, "no key".to_owned()),
        OutOfScope::Unreadable => (None, "a form that cannot be read".to_owned()),
    };
    let detail = serde_json::json!({"table": table, "key": key, "shard": shard, "split_id": id});
    RemoteError::out_of_scope(
        shard,
        format!(
            "shard \"{shard}\" returned a row of {what} for table {table}, which split {id} does not move"
        ),
        detail.to_string(),
        format!(
            "Nothing of this step was kept. Find out what on shard {}, or between it and the master, returns rows of other keys. Then resume the split, or roll it back.",
            literal(shard)
        ),
    )
}

/// Returns what follows a value, or the header.
fn after(row: Option<SieveRow>) -> NextByte {
    match row {
        Some(row) if row.column < row.count => NextByte::Length(row),
        Some(_) | None => NextByte::Row,
    }
}

fn number_at(bytes: &[u8]) -> i32 {
    bytes.get(..4).and_then(|four| four.try_into().ok()).map_or(0, i32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::interval::Interval;
    use crate::keys::ordered::Ordered;
    use crate::keys::scope::Scope;
    use crate::properties::hold;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn matcher(scope: &Scope, of: Ordered) -> Rc<KeyMatcher> {
        Rc::new(KeyMatcher::of(scope, of, 1).unwrap())
    }

    /// Returns rows of three columns: a long value, the key, NULL.
    fn copy(values: &[Option<&[u8]>], end: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0; 4]);
        bytes.extend(3_i32.to_be_bytes());
        bytes.extend(b"xyz");
        for value in values {
            bytes.extend(3_i16.to_be_bytes());
            bytes.extend(300_i32.to_be_bytes());
            bytes.extend([7; 300]);
            match value {
                Some(value) => {
                    bytes.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
                    bytes.extend(*value);
                }
                None => bytes.extend((-1_i32).to_be_bytes()),
            }
            bytes.extend((-1_i32).to_be_bytes());
        }
        bytes.extend(end);
        bytes
    }

    /// The result must be the same however the bytes are divided.
    fn pass(matcher: &Rc<KeyMatcher>, bytes: &[u8]) -> Result<(), OutOfScope> {
        let outcomes = [1, 2, 3, 7, 64, 311, bytes.len()].map(|size| {
            let mut filter = ScopeFilter::new(matcher.clone());
            bytes.chunks(size).try_for_each(|piece| filter.pass(piece))
        });
        let [first, others @ ..] = outcomes;
        assert!(others.iter().all(|other| *other == first));
        first
    }

    #[test]
    fn listed_keys_pass_and_no_others() {
        let texts = Scope::Keys(vec!["moves".into(), "x".into(), String::new()]);
        let texts = matcher(&texts, Ordered::Text);
        assert_eq!(pass(&texts, &copy(&[Some(b"moves"), Some(b""), Some(b"x")], b"\xff\xff")), Ok(()));
        let out_of_scope = Err(OutOfScope::Key("stays".into()));
        assert_eq!(pass(&texts, &copy(&[Some(b"moves"), Some(b"stays"), Some(b"x")], b"")), out_of_scope);
        assert_eq!(pass(&texts, &copy(&[Some(b"x"), None], b"")), Err(OutOfScope::Null));
        assert_eq!(pass(&texts, &copy(&[Some(b"x ")], b"")), Err(OutOfScope::Key("x ".into())));

        let numbers = Scope::Keys(vec!["-7".into(), "300".into()]);
        let numbers = matcher(&numbers, Ordered::BigInt);
        let value = |number: i64| number.to_be_bytes();
        let small = 300_i16.to_be_bytes();
        assert_eq!(pass(&numbers, &copy(&[Some(&value(-7)), Some(&small)], b"")), Ok(()));
        assert_eq!(pass(&numbers, &copy(&[Some(&value(7))], b"")), Err(OutOfScope::Key("7".into())));
        assert!(KeyMatcher::of(&Scope::Keys(vec!["007".into()]), Ordered::BigInt, 1).is_none());
    }

    #[test]
    fn buckets_and_ranges_are_those_of_the_keys() {
        let count = NonZeroU32::new(64).unwrap();
        let bucket = Ordered::Text.bucket("moves", count);
        let scope = Scope::Buckets { of: Ordered::Text, count, buckets: vec![bucket.to_string()] };
        let hashed = matcher(&scope, Ordered::Text);
        assert_eq!(pass(&hashed, &copy(&[Some(b"moves")], b"")), Ok(()));
        assert_ne!(Ordered::Text.bucket("stays", count), bucket);
        assert!(pass(&hashed, &copy(&[Some(b"stays")], b"")).is_err());
        assert!(pass(&hashed, &copy(&[Some(b"\xff\xfe")], b"")).is_err());

        let range = |lower: Option<&str>, upper: Option<&str>| Interval {
            lower: lower.map(str::to_owned),
            upper: upper.map(str::to_owned),
        };
        let scope = Scope::Ranges {
            of: Ordered::BigInt,
            ranges: vec![range(None, Some("-5")), range(Some("3"), Some("9"))],
        };
        let ranged = matcher(&scope, Ordered::BigInt);
        for (number, is_in) in [(-6, true), (-5, false), (0, false), (3, true), (8, true), (9, false)] {
            let value = i64::to_be_bytes(number);
            assert_eq!(pass(&ranged, &copy(&[Some(&value)], b"")).is_ok(), is_in, "{number}");
        }
    }

    #[test]
    fn what_is_no_copy_does_not_pass() {
        let texts = matcher(&Scope::Keys(vec!["x".into()]), Ordered::Text);
        assert_eq!(pass(&texts, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff"), Ok(()));
        for bytes in [
            &b"x\ty\tz of a COPY as a text\n"[..],
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff\0",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xfe",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\xff\xff\xff\xff",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x03\xff\xff\xff\xfe",
        ] {
            assert_eq!(pass(&texts, bytes), Err(OutOfScope::Unreadable), "{bytes:?}");
        }
    }

    /// Passes the bytes in pieces of these sizes, over and over.
    fn in_pieces(matcher: &Rc<KeyMatcher>, bytes: &[u8], sizes: &[usize]) -> Result<(), OutOfScope> {
        let (mut filter, mut rest) = (ScopeFilter::new(matcher.clone()), bytes);
        for size in sizes.iter().cycle() {
            let (piece, behind) = rest.split_at(rest.len().min(*size));
            filter.pass(piece)?;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    type Value = Option<Vec<u8>>;

    fn of_rows(head: usize, rows: &[[Value; 3]]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0; 4]);
        bytes.extend(i32::try_from(head).unwrap().to_be_bytes());
        bytes.extend(vec![9; head]);
        for row in rows {
            bytes.extend(3_i16.to_be_bytes());
            for value in row {
                let length = value.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap());
                bytes.extend(length.to_be_bytes());
                bytes.extend(value.iter().flatten());
            }
        }
        bytes.extend(b"\xff\xff");
        bytes
    }

    #[test]
    fn rows_pass_by_their_keys_alone_however_the_bytes_come() {
        let texts = matcher(&Scope::Keys(vec!["a".into(), "bb".into(), String::new()]), Ordered::Text);
        let value = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..6));
        let keys = prop_oneof![9 => "a|bb|", 1 => "[abc]{0,3}"].prop_map(|key| Some(key.into_bytes()));
        let key = prop_oneof![30 => keys, 1 => Just(None)];
        let rows = proptest::collection::vec((value(), key, value()).prop_map(|(a, b, c)| [a, b, c]), 0..8);
        let sizes = || proptest::collection::vec(1..40_usize, 1..5);
        hold((0..4_usize, rows, sizes()), |(head, rows, sizes)| {
            let out_of_scope = rows.iter().find_map(|[_, key, _]| match key.as_deref() {
                Some(b"a" | b"bb" | b"") => None,
                Some(other) => Some(OutOfScope::Key(String::from_utf8_lossy(other).into_owned())),
                None => Some(OutOfScope::Null),
            });
            prop_assert_eq!(
                in_pieces(&texts, &of_rows(head, &rows), &sizes),
                out_of_scope.map_or(Ok(()), Err)
            );
            Ok(())
        });
        // Bytes that are not a COPY are refused however they are divided.
        hold(
            (proptest::collection::vec(any::<u8>(), 0..30), any::<bool>(), sizes()),
            |(bytes, begins, sizes)| {
                let head = [SIGNATURE, &[0; 8]].concat();
                let all = if begins { [head, bytes].concat() } else { bytes };
                prop_assert_eq!(
                    in_pieces(&texts, &all, &sizes),
                    in_pieces(&texts, &all, &[all.len().max(1)])
                );
                Ok(())
            },
        );
    }
}
