//! Numbers of things, as people write them.

use std::fmt::Display;

/// `1 row`, `2 rows`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, one: &str, more: &str) -> String {
    let word = if number == N::from(1) { one } else { more };
    format!("{number} {word}")
}

pub fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lists names in quotes.
pub fn quoted<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    listed(names.into_iter().map(|name| format!("\"{name}\"")))
}

/// Lists some of the names, and how many more there are.
pub fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = listed(names.iter().take(SHOWN));
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 row of the moved keys is`, `2 rows of the moved keys are`.
pub fn moved<N: Display + PartialEq + From<u8>>(number: N) -> String {
    counted(number, "row of the moved keys is", "rows of the moved keys are")
}

/// Replaces `{id}` in a hint with the number of the split.
pub fn of_split(hint: &str, id: i64) -> String {
    hint.replace("{id}", &id.to_string())
}

/// The end of a hint if no repair lets a split continue.
pub fn from_the_beginning(id: i64) -> String {
    format!("SELECT shard_split_rollback({id}), then start the split again.")
}

/// The end of a hint for a reverse split, which is not started again.
pub fn gives_up(back: i64, there: i64) -> String {
    format!(
        "The reverse split has missed changes and cannot continue. Remove it with SELECT shard_split_rollback({back}), finish split {there}, and plan a split in the other direction."
    )
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
