//! Names that users choose: of shards, kinds, keyspaces. They appear in code on the shards, in configurations of
//! gateways and in headers, so they contain no character with a meaning there, however they are quoted.

/// Longest name, in bytes, as for the server's own names.
const MAX_BYTES: usize = 63;

/// Forbidden besides control characters. Braces, dollars, backslashes and backquotes have a meaning in templates, in
/// quotes of functions, in strings and in shells.
const FORBIDDEN: &[char] = &['{', '}', '$', '\\', '`'];

/// Returns what is wrong with a name, or None if it is valid.
pub fn problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if name.len() > MAX_BYTES {
        return Some(format!("a name has at most {MAX_BYTES} bytes"));
    }
    if name.starts_with(' ') || name.ends_with(' ') {
        return Some("a name must not begin or end with a space".into());
    }
    let forbidden = forbidden(name)?;
    Some(format!("a name cannot contain the character {}", forbidden.escape_unicode()))
}

fn forbidden(text: &str) -> Option<char> {
    text.chars().find(|c| c.is_control() || FORBIDDEN.contains(c) || is_invisible(*c))
}

/// Longest address, in bytes.
const MAX_URI_BYTES: usize = 2_048;

/// Returns what is wrong with the address of a shard that nothing connects to. The address is stored and dumped as it
/// is, so it must not contain a password.
pub fn problem_of_uri(uri: &str) -> Option<String> {
    if uri.len() > MAX_URI_BYTES {
        return Some(format!("it is longer than {MAX_URI_BYTES} bytes"));
    }
    if let Some(forbidden) = forbidden(uri) {
        return Some(format!("it cannot contain the character {}", forbidden.escape_unicode()));
    }
    let behind = uri.split_once("//").map_or(uri, |(_, behind)| behind);
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, _) = authority.rsplit_once('@')?;
    user.contains(':')
        .then(|| "it contains a password: store that as a credential, and name it in credential_alias".into())
}

/// Whether a character changes how the text around it is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{problem, problem_of_uri};

    #[test]
    fn an_address_has_no_password() {
        let long = format!("https://vectors.example.com/{}", "v".repeat(1_000));
        for uri in ["s3://bucket/a:b@c", "https://user@h:80/x?y=a:b@c", "//h", "h", "mailto", &long] {
            assert_eq!(problem_of_uri(uri), None, "{uri}");
        }
        let longer = "v".repeat(2_049);
        for uri in ["https://user:sEcret@h/x", "//:sEcret@h", "user:sEcret@h", "https://h/\n", &longer] {
            let problem = problem_of_uri(uri).unwrap();
            assert!(!problem.contains("sEcret"), "{problem}");
        }
    }

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
