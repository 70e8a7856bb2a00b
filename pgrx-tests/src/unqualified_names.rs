//! Finds names in the text of a function that its caller could give another meaning. Such a function runs
//! with its owner's rights and its caller's search_path.

/// Words before a parenthesis that are not names of functions.
const WORDS: [&str; 13] = [
    "from", "if", "and", "or", "not", "exists", "values", "operator", "row", "coalesce", "select", "perform",
    "elsif",
];
/// Words for which the server looks up an operator by its name.
const LOOKED_UP: [&str; 8] = ["in", "like", "ilike", "between", "distinct", "nullif", "similar", "any"];
/// Types that are words of the grammar. The server takes them from pg_catalog.
const TYPES: [&str; 6] = ["boolean", "bigint", "int", "integer", "numeric", "smallint"];

/// Removes comments, quoted texts, and operators that name their schema.
fn bare(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        lines.push_str(line.split("--").next().unwrap_or_default());
        lines.push('\n');
    }
    let outside: Vec<&str> = lines.split('\'').step_by(2).collect();
    let mut bare = outside.join("''");
    // Options of RAISE are not comparisons.
    for option in ["ERRCODE", "DETAIL", "HINT", "MESSAGE"] {
        bare = bare.replace(&format!("{option} ="), "");
    }
    // This names the mode of a lock; no operator is looked up.
    bare = bare.replace(" IN ROW SHARE MODE", "");
    while let Some(at) = bare.find("OPERATOR(pg_catalog.") {
        let Some(length) = bare[at..].find(')') else { break };
        bare.replace_range(at..=at + length, " ");
    }
    bare
}

/// Returns the names that the caller of such a function could shadow, each with the text around it.
pub fn unqualified(text: &str) -> Vec<String> {
    let bare = bare(text);
    let (declared, body) = bare.split_once("BEGIN").unwrap_or(("", &bare));
    let mut found: Vec<String> = declared.lines().filter_map(declared_type).collect();
    let characters: Vec<char> = body.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let is_name = |c: char| c.is_alphanumeric() || "_.\"$".contains(c);
        let is_operator = |c: char| "+-*/<>=~!@#%^&|`?:".contains(c);
        let kind: &dyn Fn(char) -> bool = match characters[at] {
            c if is_name(c) => &is_name,
            c if is_operator(c) => &is_operator,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = (at..characters.len()).find(|end| !kind(characters[*end])).unwrap_or(characters.len());
        let token: String = characters[at..end].iter().collect();
        let next = characters[end..].iter().find(|c| !c.is_whitespace());
        let lower = token.to_lowercase();
        let is_wrong = if is_operator(characters[at]) {
            token == "::" && !is_safe_type(&characters[end..]) || !matches!(token.as_str(), "::" | ":=")
        } else {
            LOOKED_UP.contains(&lower.as_str())
                || next == Some(&'(') && !lower.contains('.') && !WORDS.contains(&lower.as_str())
        };
        if is_wrong {
            let around: String =
                characters[at.saturating_sub(30)..(end + 30).min(characters.len())].iter().collect();
            found.push(format!("{token} in \"{}\"", around.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        at = end;
    }
    found
}

fn is_safe_type(rest: &[char]) -> bool {
    let name: String = rest.iter().take_while(|c| c.is_alphanumeric() || "_.".contains(**c)).collect();
    name.starts_with("pg_catalog.") || TYPES.contains(&name.as_str())
}

/// Returns a line of the declarations if the caller could shadow its type.
fn declared_type(line: &str) -> Option<String> {
    let mut words = line.trim().trim_end_matches(';').split_whitespace();
    let (_, name) = (words.next()?, words.next()?);
    (!name.starts_with("pg_catalog.") && !TYPES.contains(&name)).then(|| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::unqualified;

    #[test]
    fn what_can_be_shadowed_is_found() {
        let safe = "DECLARE\n a pg_catalog.text := pg_catalog.f('x = y', 1);\n b boolean := false;\nBEGIN
            IF a OPERATOR(pg_catalog.=) '' THEN RETURN a::pg_catalog.int8; END IF; -- a = b
            b := EXISTS (SELECT 1 FROM s.t WHERE pg_catalog.g(a));\nEND";
        assert_eq!(unqualified(safe), Vec::<String>::new());
        for text in [
            "DECLARE\n a text;\nBEGIN NULL; END",
            "BEGIN RETURN a = b; END",
            "BEGIN RETURN a::text; END",
            "BEGIN RETURN f(a); END",
            "BEGIN RETURN a IN (1, 2); END",
            "BEGIN RETURN a IS DISTINCT FROM b; END",
        ] {
            assert_eq!(unqualified(text).len(), 1, "{text}: {:?}", unqualified(text));
        }
    }
}
