//! Names that users choose: of shards, kinds, keyspaces. They end up in code on the shards,
//! in configurations of gateways and in headers, so they hold nothing that means something
//! there, whoever quotes them.

/// Longest name, in bytes: as the server's own.
const MAX_BYTES: usize = 63;

/// Beside control characters. Braces, dollars, backslashes and backquotes begin something in
/// templates, in quotes of functions, in strings and in shells.
const FORBIDDEN: &[char] = &['{', '}', '$', '\\', '`'];

/// What is wrong with a name.
pub fn problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if name.len() > MAX_BYTES {
        return Some(format!("a name has at most {MAX_BYTES} bytes"));
    }
    if name.starts_with(' ') || name.ends_with(' ') {
        return Some("a name neither begins nor ends with a space".into());
    }
    let forbidden = name.chars().find(|c| c.is_control() || FORBIDDEN.contains(c) || is_invisible(*c))?;
    Some(format!("a name cannot contain the character {}", forbidden.escape_unicode()))
}

/// Characters that change how the text around them is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn names_that_people_give_are_names() {
        for name in
            ["a", "shard-7", "eu/west.1", "Käse & Brot", "Quoted \"Name\", with spaces", "O'Neil", "地区"]
        {
            assert_eq!(problem(name), None, "{name}");
        }
    }

    #[test]
    fn what_means_something_elsewhere_is_none() {
        let long = "x".repeat(64);
        for name in [
            "",
            "a\nb",
            "a\rb",
            "a\tb",
            "a{shard}b",
            "$agent$",
            "a\\b",
            "`id`",
            " a",
            "a ",
            "a\u{202e}b",
            &long,
        ] {
            assert!(problem(name).is_some(), "{name:?}");
        }
    }
}
