//! Estimated numbers in words, and names in statements for people.

use crate::remote::quote::{ident, ident_as_needed};
use std::fmt::Display;

/// The words that cannot be a name of a column or a constraint without quotes, in any version of the server.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate \
    collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time \
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full \
    grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime \
    localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning right \
    select session_user similar some symmetric system_user table tablesample then to trailing true union unique user using \
    variadic verbose when where window with ";

/// Returns a name for a statement that a person runs: quoted where the server needs it.
pub fn sql_name(name: &str) -> String {
    if RESERVED.contains(&format!(" {name} ")) { ident(name) } else { ident_as_needed(name) }
}

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
    use super::{percent, size, sql_name};

    #[test]
    fn sizes_and_parts_are_short() {
        let sizes = [0, 8192, 64 << 20, 5 << 40].map(size);
        assert_eq!(sizes, ["0 bytes", "8192 bytes", "64 MB", "5120 GB"]);
        assert_eq!([0.0, 0.001, 0.25].map(percent), ["0 %", "0.1 %", "25 %"]);
    }

    #[test]
    fn a_reserved_word_is_quoted() {
        let names = ["order", "with", "orders", "id", "Id"].map(sql_name);
        assert_eq!(names, ["\"order\"", "\"with\"", "orders", "id", "\"Id\""]);
    }
}
