//! Estimated numbers in words.

use std::fmt::Display;

/// Returns a size with its unit, as the server's pg_size_pretty() has it.
pub fn size(bytes: i64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 10_240.0 && unit + 1 < units.len() {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    format!("{number:.0} {}", units[unit])
}

/// `about 3 rows`
pub fn about(number: i64, one: &str, more: &str) -> String {
    format!("about {number} {}", if number == 1 { one } else { more })
}

/// Returns seconds as days, at least one.
pub fn days(seconds: i64) -> f64 {
    (seconds as f64 / 86_400.0).max(1.0)
}

/// Returns a fraction in percent, with one digit if it is small.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent > 0.0 && percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Lists some of the items, and how many more there are.
pub fn few<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    crate::words::some_of(&items)
}

#[cfg(test)]
mod tests {
    use super::{percent, size};

    #[test]
    fn sizes_and_parts_are_short() {
        let sizes = [0, 8192, 64 << 20, 5 << 40].map(size);
        assert_eq!(sizes, ["0 bytes", "8192 bytes", "64 MB", "5120 GB"]);
        assert_eq!([0.0, 0.001, 0.25].map(percent), ["0 %", "0.1 %", "25 %"]);
    }
}
