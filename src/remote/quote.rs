//! Quoting for statements that a shard runs. Sessions pin
//! standard_conforming_strings, so only quotes need doubling.

/// An identifier, always quoted.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Identifiers, each with a prefix, separated by commas.
pub fn idents(prefix: &str, names: &[String]) -> String {
    names.iter().map(|n| format!("{prefix}{}", ident(n))).collect::<Vec<_>>().join(", ")
}

/// A literal of an array of texts.
pub fn array_literal(items: &[String]) -> String {
    literal(&text_array(items))
}

/// The text form of an array, for a parameter.
pub fn text_array(items: &[String]) -> String {
    array_of(items.iter().map(|item| Some(item.as_str())))
}

/// The same where some may be NULL.
pub fn array_of<'a>(items: impl Iterator<Item = Option<&'a str>>) -> String {
    let items: Vec<String> = items
        .map(|item| match item {
            Some(item) => format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\"")),
            None => "NULL".to_owned(),
        })
        .collect();
    format!("{{{}}}", items.join(","))
}
