//! What a statement's text contains, by its tokens: whether it calls the function that is given secrets, or executes a
//! prepared statement. Comments, literals and quoted names of other objects do not count: nobody can hide a statement
//! by mentioning the function's name there.
//!
//! Nothing here allocates: it is called while a line for the log is reported.

/// The function's name, which texts may contain in upper or lower case.
pub const NAME: &[u8] = b"shard_credential_set";

/// The tokens of a text, as far as they matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StatementToken<'a> {
    Word(&'a [u8]),
    /// A name in double quotes, without them.
    Name(&'a [u8]),
    Literal,
    /// A text in dollar quotes, without them.
    Body(&'a [u8]),
    Sign(u8),
}

/// An iterator over the tokens of a text.
#[derive(Clone)]
struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    /// Skips blanks and comments, which may be nested.
    fn skip(&mut self) {
        loop {
            self.0 = self.0.trim_ascii_start();
            if self.0.starts_with(b"--") {
                let end = self.0.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                self.0 = end.and_then(|end| self.0.get(end..)).unwrap_or_default();
            } else if self.0.starts_with(b"/*") {
                let (mut depth, mut at) = (1, 2);
                while depth > 0 && at < self.0.len() {
                    match self.0.get(at..at + 2) {
                        Some(b"/*") => (depth, at) = (depth + 1, at + 2),
                        Some(b"*/") => (depth, at) = (depth - 1, at + 2),
                        _ => at += 1,
                    }
                }
                self.0 = self.0.get(at..).unwrap_or_default();
            } else {
                return;
            }
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the content of the quotes at the start of the rest, or all of the rest if they are not closed.
    fn quoted(&mut self, quote: u8, has_escapes: bool) -> &'a [u8] {
        let mut at = 1;
        while let Some(byte) = self.0.get(at) {
            match *byte {
                b'\\' if has_escapes => at += 2,
                byte if byte == quote && self.0.get(at + 1) == Some(&quote) => at += 2,
                byte if byte == quote => break,
                _ => at += 1,
            }
        }
        let all = self.take(at + 1);
        all.get(1..at.min(all.len())).unwrap_or_default()
    }

    fn body(&mut self) -> Option<&'a [u8]> {
        let end = self.0.get(1..)?.iter().position(|byte| *byte == b'$')? + 1;
        let tag = self.0.get(..=end)?;
        let name = tag.get(1..end)?;
        if name.first().is_some_and(u8::is_ascii_digit) || !name.iter().copied().all(is_of_word) {
            return None;
        }
        self.take(tag.len());
        let close = self.0.windows(tag.len()).position(|window| window == tag).unwrap_or(self.0.len());
        let body = self.take(close);
        self.take(tag.len());
        Some(body)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = StatementToken<'a>;

    fn next(&mut self) -> Option<StatementToken<'a>> {
        self.skip();
        let first = *self.0.first()?;
        if first == b'\'' {
            self.quoted(b'\'', false);
            return Some(StatementToken::Literal);
        }
        if first == b'"' {
            return Some(StatementToken::Name(self.quoted(b'"', false)));
        }
        if first == b'$'
            && let Some(body) = self.body()
        {
            return Some(StatementToken::Body(body));
        }
        if !is_of_word(first) || first == b'$' {
            self.take(1);
            return Some(StatementToken::Sign(first));
        }
        let end = self.0.iter().position(|byte| !is_of_word(*byte)).unwrap_or(self.0.len());
        let word = self.take(end);
        // Only E'..' has escapes; for U&'..', only the sign stands between.
        if word.eq_ignore_ascii_case(b"e") && self.0.first() == Some(&b'\'') {
            self.quoted(b'\'', true);
            return Some(StatementToken::Literal);
        }
        Some(StatementToken::Word(word))
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// Whether a text calls the function: its name before a parenthesis. The body of a DO is code too; the content of
/// other literals is not.
pub fn calls(text: &[u8]) -> bool {
    // Most texts do not even contain the name.
    names(text) && calls_within(text)
}

fn calls_within(text: &[u8]) -> bool {
    let mut tokens = Tokens(text);
    let (mut is_first, mut is_do) = (true, false);
    while let Some(token) = tokens.next() {
        let is_name = match token {
            StatementToken::Word(word) => word.eq_ignore_ascii_case(NAME),
            StatementToken::Name(name) => name == NAME,
            StatementToken::Literal | StatementToken::Body(_) | StatementToken::Sign(_) => false,
        };
        if is_name && tokens.clone().next() == Some(StatementToken::Sign(b'(')) {
            return true;
        }
        match token {
            StatementToken::Word(word) if is_first => is_do = word.eq_ignore_ascii_case(b"do"),
            StatementToken::Body(body) if is_do && calls_within(body) => return true,
            _ => {}
        }
        is_first = token == StatementToken::Sign(b';');
        is_do &= !is_first;
    }
    false
}

/// Whether a text has an EXECUTE of something that may be a prepared statement, rather than a privilege or a trigger's
/// function.
pub fn executes(text: &[u8]) -> bool {
    let mut tokens = Tokens(text);
    while let Some(token) = tokens.next() {
        if !matches!(token, StatementToken::Word(word) if word.eq_ignore_ascii_case(b"execute")) {
            continue;
        }
        match tokens.clone().next() {
            Some(StatementToken::Word(word)) => {
                let others: [&[u8]; 4] = [b"on", b"function", b"procedure", b"format"];
                if !others.iter().any(|other| word.eq_ignore_ascii_case(other)) {
                    return true;
                }
            }
            Some(StatementToken::Name(_)) | None => return true,
            Some(StatementToken::Literal | StatementToken::Body(_) | StatementToken::Sign(_)) => {}
        }
    }
    false
}

/// How far the name can be shifted, by the byte below its last letter. Most of a text is passed in steps of the name's
/// length, because every statement is checked.
const STEPS: [u8; 256] = {
    let mut steps = [NAME.len() as u8; 256];
    let mut at = 0;
    while at + 1 < NAME.len() {
        steps[NAME[at] as usize] = (NAME.len() - 1 - at) as u8;
        steps[NAME[at].to_ascii_uppercase() as usize] = (NAME.len() - 1 - at) as u8;
        at += 1;
    }
    steps
};

/// Whether a text contains the name anywhere; the text may be only a part of a statement.
pub fn names(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(window) = text.get(at..at + NAME.len()) {
        if window.eq_ignore_ascii_case(NAME) {
            return true;
        }
        let last = window.last().copied().unwrap_or_default();
        at += usize::from(STEPS.get(usize::from(last)).copied().unwrap_or(1));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{NAME, calls, executes, names};

    #[test]
    fn a_call_is_found_by_its_tokens() {
        for text in [
            "SELECT shard_credential_set('a', 'password', '{}')",
            "select public.Shard_Credential_SET ($1)",
            "SELECT \"public\".\"shard_credential_set\" /* ( */ -- x\n ('a')",
            "SELECT 'it''s', E'\\'', $$a$$, $x$ ' $x$, shard_credential_set('a",
            "/* a /* b */ c */ PREPARE s AS SELECT shard_credential_set($1, $2, $3)",
            "SELECT 1; DO LANGUAGE plpgsql $b$ BEGIN PERFORM shard_credential_set('a'); END $b$",
            "DO $$ BEGIN /* x */ EXECUTE 'y'; PERFORM shard_credential_set ('a'",
        ] {
            assert!(calls(text.as_bytes()), "{text}");
        }
        for text in [
            "SELECT evil() -- shard_credential_set('a')",
            "SELECT evil() /* shard_credential_set('a') */",
            "SELECT evil() /* /* */ shard_credential_set('a') */",
            "SELECT evil('shard_credential_set(1)')",
            "SELECT evil(E'\\' shard_credential_set(1)')",
            "SELECT evil(U&'shard_credential_set(1)')",
            "SELECT evil($$ shard_credential_set(1) $$)",
            "SELECT evil($do$ shard_credential_set(1) $do$)",
            "DO $$ BEGIN PERFORM evil(); -- shard_credential_set('a')\n END $$",
            "DO 'BEGIN PERFORM evil(); END' ; SELECT $$ shard_credential_set(1) $$",
            "SELECT 1 AS shard_credential_set",
            "SELECT evil() AS \"shard_credential_set(\"",
            "SELECT evil() AS \"Shard_Credential_Set\" (1)",
            "SELECT my_shard_credential_set(1), shard_credential_set_not(2)",
            "GRANT EXECUTE ON FUNCTION f TO shard_credential_set",
        ] {
            assert!(!calls(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn an_execute_is_found_unless_it_executes_nothing_prepared() {
        for text in [
            "EXECUTE s('x')",
            "explain (analyze) execute  s",
            "CREATE TABLE t AS EXECUTE\ts",
            "EXECUTE",
            "execute /* x */ \"s\" ('x'",
        ] {
            assert!(executes(text.as_bytes()), "{text}");
        }
        for text in [
            "GRANT EXECUTE  ON FUNCTION f TO r",
            "CREATE TRIGGER t EXECUTE FUNCTION f()",
            "SELECT evil() /* EXECUTE s */",
            "SELECT evil('execute s')",
            "SELECT evil() AS \"execute\"",
            "SELECT 1",
        ] {
            assert!(!executes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn the_name_is_found_wherever_it_stands() {
        let name = String::from_utf8(NAME.to_vec()).unwrap();
        for before in 0..45 {
            for filler in ["x", "_", "shard_", "t", "credential_se"] {
                let before: String = filler.chars().cycle().take(before).collect();
                for text in [format!("{before}{name}"), format!("{before}{}(1)", name.to_uppercase())] {
                    assert!(names(text.as_bytes()), "{text}");
                }
                let cut = format!("{before} {} {}", &name[1..], &name[..name.len() - 1]);
                assert!(!names(cut.as_bytes()), "{cut}");
            }
        }
        assert!(!names(b"") && !names(&NAME[1..]));
    }

    #[test]
    fn no_text_is_too_odd_to_be_read() {
        for text in [
            "'",
            "\"",
            "$",
            "$$",
            "$a",
            "/*",
            "--",
            "E'\\",
            "e'",
            "U&",
            "'a'''",
            "\u{fe}$x$",
            "shard_credential_set",
        ] {
            let _ = (calls(text.as_bytes()), executes(text.as_bytes()));
            let longer = format!("{text} shard_credential_set(");
            let _ = (calls(longer.as_bytes()), executes(longer.as_bytes()));
        }
    }
}
