//! Numbers in a shard's answers. A compromised server may report any: a number that would overflow here, or that no
//! honest server reports, is an error with its name.

use super::error::RemoteError;

/// More rows, bytes, steps, microseconds since 1970 or workers than any shard will see. Sums over tables use `sum`,
/// since a split may have any number of them.
pub const MOST: i64 = 1 << 53;
/// The greatest number of blocks of a table.
pub const MOST_BLOCKS: i64 = u32::MAX as i64;

/// Parses what a shard has counted. `what` names it in errors.
pub fn count(shard: &str, what: &str, cell: Option<&str>) -> Result<i64, RemoteError> {
    let text = cell.unwrap_or("nothing");
    match text.parse() {
        Ok(number) if (0..=MOST).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(RemoteError::no_number(shard, what, text)),
    }
}

/// Parses a position in a list, which a server counts from 1: the result counts from 0.
pub fn index(cell: &str) -> Option<usize> {
    cell.parse::<usize>().ok()?.checked_sub(1)
}

/// Returns the sum of what shards have counted, limited to the largest number.
pub fn sum(numbers: impl Iterator<Item = i64>) -> i64 {
    numbers.fold(0, i64::saturating_add)
}

/// Parses the number of blocks of a table.
pub fn blocks(shard: &str, cell: Option<&str>) -> Result<i64, RemoteError> {
    const WHAT: &str = "the blocks of a table";
    match count(shard, WHAT, cell)? {
        number if number <= MOST_BLOCKS => Ok(number),
        number => Err(RemoteError::no_number(shard, WHAT, &number.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, blocks, count, sum};

    #[test]
    fn sums_of_many_tables_have_an_end() {
        assert_eq!(sum([1, 2, 3].into_iter()), 6);
        assert_eq!(sum(std::iter::repeat_n(MOST, 5000)), i64::MAX);
    }

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
