//! Quoting for statements that a shard runs.

/// Returns an identifier, always quoted.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns an identifier, quoted only if its letters require it: for people, and for code that reads names without
/// knowing keywords. The result does not depend on a server's settings or version.
pub fn ident_as_needed(name: &str) -> String {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    if is_plain { name.to_owned() } else { ident(name) }
}

/// Returns the name of a relation with its schema, always quoted.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", ident(schema), ident(name))
}

/// Returns such a name quoted as needed, for people.
pub fn qualified_as_needed(schema: &str, name: &str) -> String {
    format!("{}.{}", ident_as_needed(schema), ident_as_needed(name))
}

/// Returns a text literal that every server reads alike: a session pins standard_conforming_strings by its first
/// message, which the server parses completely before that setting applies.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// Returns identifiers, each with a prefix, separated by commas.
pub fn idents(prefix: &str, names: &[String]) -> String {
    names.iter().map(|n| format!("{prefix}{}", ident(n))).collect::<Vec<_>>().join(", ")
}

/// Returns a literal of an array of texts.
pub fn array_literal(items: &[String]) -> String {
    literal(&text_array(items))
}

/// Returns the text form of an array, for a parameter.
pub fn text_array(items: &[String]) -> String {
    array_of(items.iter().map(|item| Some(item.as_str())))
}

/// Returns the text form of an array whose items may be NULL.
pub fn array_of<'a>(items: impl Iterator<Item = Option<&'a str>>) -> String {
    let items: Vec<String> = items
        .map(|item| match item {
            Some(item) => format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\"")),
            None => "NULL".to_owned(),
        })
        .collect();
    format!("{{{}}}", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::hold;
    use proptest::prelude::*;

    /// Returns what a server reads between two quotes, and what follows them.
    fn unquoted(text: &str, quote: char) -> Option<(String, &str)> {
        let mut rest = text.strip_prefix(quote)?;
        let mut read = String::new();
        loop {
            let (before, after) = rest.split_once(quote)?;
            read.push_str(before);
            let Some(more) = after.strip_prefix(quote) else { return Some((read, after)) };
            read.push(quote);
            rest = more;
        }
    }

    #[test]
    fn a_name_is_quoted_where_its_letters_ask_for_it() {
        let written = ["orders", "_a1", "Orders", "a b", "1a", "größe", "a\"b", ""].map(ident_as_needed);
        let wanted = ["orders", "_a1", "\"Orders\"", "\"a b\"", "\"1a\"", "\"größe\"", "\"a\"\"b\"", "\"\""];
        assert_eq!(written, wanted);
    }

    /// Returns the items of an array's text form, as the server reads it.
    fn items_of(text: &str) -> Option<Vec<Option<String>>> {
        let mut rest = text.strip_prefix('{')?.strip_suffix('}')?;
        let mut items = Vec::new();
        while !rest.is_empty() {
            rest = match rest.strip_prefix("NULL") {
                Some(behind) => {
                    items.push(None);
                    behind
                }
                None => {
                    let mut item = String::new();
                    let mut characters = rest.strip_prefix('"')?.chars();
                    loop {
                        match characters.next()? {
                            '\\' => item.push(characters.next()?),
                            '"' => break,
                            other => item.push(other),
                        }
                    }
                    items.push(Some(item));
                    characters.as_str()
                }
            };
            rest = match rest.strip_prefix(',') {
                Some(more) if !more.is_empty() => more,
                Some(_) => return None,
                None if rest.is_empty() => rest,
                None => return None,
            };
        }
        Some(items)
    }

    #[test]
    fn a_server_reads_what_was_quoted() {
        let text = || prop_oneof!["['\"\\\\,{}a]{0,6}", ".{0,8}"];
        hold(text(), |text| {
            let (name, value) = (ident(&text), literal(&text));
            prop_assert_eq!(unquoted(&name, '"'), Some((text.clone(), "")));
            // Backslashes are escaped in an E literal, whatever the server's settings are.
            let plain = value.strip_prefix('E').unwrap_or(&value);
            prop_assert_eq!(value.starts_with('E'), text.contains('\\'));
            let escaped = text.replace('\\', "\\\\");
            prop_assert_eq!(unquoted(plain, '\''), Some((escaped, "")));
            Ok(())
        });
        hold(proptest::collection::vec(proptest::option::of(text()), 0..4), |items| {
            let array = array_of(items.iter().map(Option::as_deref));
            prop_assert_eq!(items_of(&array), Some(items));
            Ok(())
        });
    }
}
