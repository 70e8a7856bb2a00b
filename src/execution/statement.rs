//! Statements that do not run on the shards: a statement must not end its transaction.

use super::error;
use crate::error::Failure;
use crate::query::encoding;

const OF_TRANSACTIONS: [&str; 9] =
    ["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE"];

pub fn require_fit(statement: &str) -> Result<(), Failure> {
    let word = first_word(statement);
    if word.is_empty() {
        return Err(error::no_statement());
    }
    if OF_TRANSACTIONS.contains(&word.as_str()) {
        return Err(error::ends_transaction(&word));
    }
    if word == "COPY" && names_a_client(statement) {
        return Err(error::copies_with_client());
    }
    Ok(())
}

/// Whether the statement may commit while it runs, if no transaction surrounds it.
pub fn may_commit(statement: &str) -> bool {
    ["CALL", "DO"].contains(&first_word(statement).as_str())
}

/// Whether a COPY is from or to the client. A file, or a table in quotes, may have such a name.
fn names_a_client(copy: &str) -> bool {
    let mut unquoted = String::new();
    let mut quote = None;
    for c in copy.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                unquoted.push(' ');
            }
            None => unquoted.push(c),
        }
    }
    let mut words = unquoted.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word.eq_ignore_ascii_case("stdin") || word.eq_ignore_ascii_case("stdout"))
}

/// Returns the first word after white space, comments and semicolons. If the statement starts with another character,
/// this is that character.
fn first_word(statement: &str) -> String {
    let mut rest = statement;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ';' || c.is_whitespace() || c == '\u{b}');
        if rest.starts_with("--") {
            rest = rest.find(['\n', '\r']).and_then(|end| rest.get(end..)).unwrap_or_default();
        } else if rest.starts_with("/*") {
            rest = rest.get(encoding::comment(rest)..).unwrap_or_default();
        } else {
            break;
        }
    }
    let word: String = rest.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
    if word.is_empty() { rest.chars().take(1).collect() } else { word.to_ascii_uppercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_is_found_behind_anything() {
        let refused = |text: &str, why: Failure| {
            assert_eq!(require_fit(text).map_err(|failure| failure.message), Err(why.message), "{text}");
        };
        for (text, word) in [
            ("commit", "COMMIT"),
            (" ;\n-- why\nCOMMIT", "COMMIT"),
            ("/* a /* b */ c */end;", "END"),
            ("--x\r abort", "ABORT"),
            ("Prepare transaction 'x'", "PREPARE"),
            ("\u{c}rollback to a", "ROLLBACK"),
        ] {
            refused(text, error::ends_transaction(word));
        }
        for text in ["", " ;; ", "/* commit", "-- commit"] {
            refused(text, error::no_statement());
        }
        for text in [
            "copy t to stdout",
            "COPY t FROM STDIN WITH (FORMAT csv, NULL 'x')",
            "copy (select 'a') to STDOUT;",
            "COPY \"it's\" FROM STDIN",
            "COPY \"it'\" FROM stdin",
        ] {
            refused(text, error::copies_with_client());
        }
        for text in
            ["COPY t TO '/stdout'", "COPY t FROM PROGRAM 'x stdin'", "SELECT stdin", "COPY \"stdin\" TO 'x'"]
        {
            assert!(require_fit(text).is_ok(), "{text}");
        }
        for text in ["ALTER TABLE t ADD commit int", "(SELECT 1)", "ending", "/**/ UPDATE t SET a = 'é'"] {
            assert!(require_fit(text).is_ok(), "{text}");
        }
    }
}
