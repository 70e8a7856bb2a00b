//! How servers write expressions. For a list of literals, as in `x IN ('a', 'b')` over a varchar, a server writes a
//! cast of the list; when it reads that text, it makes casts of the literals, and writes those next time. So a
//! restored dump has another text for the same expression.

/// Returns a text in the form that stays the same.
pub fn canonical(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inner, after)) = next_list(rest) {
        let items = items(inner);
        let is_plain = items.iter().all(|item| literal(item).is_some());
        let in_parentheses = before.ends_with('(') && after.starts_with(')');
        let (before, behind) =
            if in_parentheses { (&before[..before.len() - 1], &after[1..]) } else { (before, after) };
        match cast(behind).filter(|_| is_plain) {
            Some((of, remains)) => {
                let items = items.iter().filter_map(|item| Some(format!("{}::{of}", literal(item)?)));
                said += &format!("{before}ARRAY[{}]", items.collect::<Vec<_>>().join(", "));
                rest = remains;
            }
            None => {
                let items = items.iter().map(|item| literal(item).unwrap_or_else(|| (*item).to_owned()));
                let open = if in_parentheses { "(" } else { "" };
                said += &format!("{before}{open}ARRAY[{}]", items.collect::<Vec<_>>().join(", "));
                rest = after;
            }
        }
    }
    said + rest
}

/// Returns the text before a list, in it, and behind it.
fn next_list(text: &str) -> Option<(&str, &str, &str)> {
    const BEGIN: &str = "ARRAY[";
    let at = text.find(BEGIN)?;
    let inner = &text[at + BEGIN.len()..];
    let end = ends(inner).last().copied()?;
    Some((&text[..at], &inner[..end], &inner[end + 1..]))
}

/// Returns the ends of the items of a list; the last item ends with the list. Returns nothing if the list has no end.
fn ends(inner: &str) -> Vec<usize> {
    let (mut depth, mut is_quoted, mut ends) = (0, false, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' => depth += 1,
            ']' if depth == 0 => {
                ends.push(at);
                return ends;
            }
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => ends.push(at),
            _ => {}
        }
    }
    Vec::new()
}

fn items(inner: &str) -> Vec<&str> {
    let closed = format!("{inner}]");
    let mut from = 0;
    let mut items = Vec::new();
    for end in ends(&closed) {
        items.push(inner[from..end].trim());
        from = end + 1;
    }
    items
}

/// Returns a literal with its casts, without parentheses between them. Returns None for any other expression.
fn literal(item: &str) -> Option<String> {
    let plain: String = item.trim_start_matches('(').to_owned();
    let body = plain.strip_prefix('\'')?;
    let mut quote = 0;
    let bytes = body.as_bytes();
    while quote < bytes.len() {
        match (bytes[quote], bytes.get(quote + 1)) {
            (b'\'', Some(b'\'')) => quote += 2,
            (b'\'', _) => break,
            _ => quote += 1,
        }
    }
    let casts = body.get(quote + 1..)?.replace(")::", "::");
    let is_type = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || " _:.\"".contains(c);
    let value = &body[..quote];
    casts.chars().all(is_type).then(|| format!("'{value}'{casts}"))
}

/// Returns the type of the items of a list that is cast as a whole, and the text that follows.
fn cast(behind: &str) -> Option<(&str, &str)> {
    let (of, remains) = behind.strip_prefix("::")?.split_once("[]")?;
    of.chars().all(|c| c.is_ascii_lowercase() || c == ' ').then_some((of, remains))
}

/// Replaces one schema by another in the names of a text: if shards are namespaces, each has functions and types of
/// its own.
pub fn in_schema(text: &str, from: &str, into: &str) -> String {
    let name = format!("{from}.");
    let mut parts = text.split(&name);
    let mut said = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The end of a longer name is not a schema.
        let ends_another = said.ends_with(|c: char| c.is_alphanumeric() || "_$\".".contains(c));
        said += if ends_another { from } else { into };
        said += ".";
        said += part;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::{canonical, in_schema};

    #[test]
    fn a_schema_is_told_from_the_end_of_a_name() {
        assert_eq!(in_schema("(a.f(x) AND data.a.x IS NULL)", "a", "b"), "(b.f(x) AND data.a.x IS NULL)");
        assert_eq!(in_schema("a.f(a.g(1))", "a", "\"B c\""), "\"B c\".f(\"B c\".g(1))");
        assert_eq!(in_schema("f(x)", "a", "b"), "f(x)");
    }

    #[test]
    fn a_list_of_literals_is_the_same_however_it_was_read() {
        let kept =
            "((st)::text = ANY (ARRAY['a, ]'::character varying::text, 'it''s'::character varying::text]))";
        for text in [
            "((st)::text = ANY ((ARRAY['a, ]'::character varying, 'it''s'::character varying])::text[]))",
            "((st)::text = ANY (ARRAY[('a, ]'::character varying)::text, ('it''s'::character varying)::text]))",
            kept,
        ] {
            assert_eq!(canonical(text), kept);
        }
        let pretty =
            "st::text = ANY (ARRAY['a'::character varying::text, 'b'::character varying::text]) OR true";
        assert_eq!(
            canonical(
                "st::text = ANY (ARRAY['a'::character varying, 'b'::character varying]::text[]) OR true"
            ),
            pretty
        );
        assert_eq!(canonical(pretty), pretty);
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "",
            "(a > 1)",
            "(n = ANY (ARRAY[1, 2]))",
            "(x = ANY ((ARRAY[(a || b), c])::text[]))",
            "('ARRAY[' || v)",
            "(v = ANY (ARRAY['a'::text, 'b'::text]))",
            "f(ARRAY['a'",
        ] {
            assert_eq!(canonical(text), text);
        }
    }
}
