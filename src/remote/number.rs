//! Numbers in a shard's answers. A server that was broken into may give any: one that the
//! arithmetic here cannot bear, or that nothing honest comes to, is an error with its name.

use super::error::RemoteError;

/// More rows, bytes, steps, microseconds since 1970 or workers than any shard will see; sums
/// of a thousand of them still fit.
pub const MOST: i64 = 1 << 53;
/// A table has no more blocks.
pub const MOST_BLOCKS: i64 = u32::MAX as i64;

/// What a shard has counted. `what` says what it is of.
pub fn count(shard: &str, what: &str, cell: Option<&str>) -> Result<i64, RemoteError> {
    let text = cell.unwrap_or("nothing");
    match text.parse() {
        Ok(number) if (0..=MOST).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(RemoteError::no_number(shard, what, text)),
    }
}

/// The blocks of a table.
pub fn blocks(shard: &str, cell: Option<&str>) -> Result<i64, RemoteError> {
    const WHAT: &str = "the blocks of a table";
    match count(shard, WHAT, cell)? {
        number if number <= MOST_BLOCKS => Ok(number),
        number => Err(RemoteError::no_number(shard, WHAT, &number.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, blocks, count};

    #[test]
    fn a_count_is_neither_below_zero_nor_without_an_end() {
        for (text, number) in [("0", 0), ("7", 7), ("9007199254740992", MOST)] {
            assert_eq!(count("a", "rows", Some(text)).ok(), Some(number));
        }
        for text in ["-1", "9007199254740993", "9223372036854775808", "", "1e3", "NaN"] {
            let error = count("a", "rows", Some(text)).unwrap_err();
            assert_eq!(error.sqlstate.map(|s| s.0), Some(*b"55000"), "{text}");
            assert!(error.message.contains("rows"), "{error}");
        }
        assert!(count("a", "rows", None).is_err());
        assert!(blocks("a", Some("4294967295")).is_ok() && blocks("a", Some("4294967296")).is_err());
    }
}
