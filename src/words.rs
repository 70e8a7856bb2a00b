//! Numbers of things, as people write them.

use std::fmt::Display;

/// `1 row`, `2 rows`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, one: &str, more: &str) -> String {
    let word = if number == N::from(1) { one } else { more };
    format!("{number} {word}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_one_and_all_else_are_more() {
        let rows = |number: i64| counted(number, "row", "rows");
        assert_eq!([0, 1, 2].map(rows), ["0 rows", "1 row", "2 rows"]);
    }
}
