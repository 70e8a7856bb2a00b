//! Texts of a shard, as they may be shown and stored here: its administrator, or whoever has
//! broken into it, could send any. Its errors are cut where they come in. Whatever else of it
//! ends up in what this master says, names of tables, roles and sessions, keys, expressions,
//! is cut and cleaned where that leaves: in the errors of calls, in what is stored of a split,
//! its history, the log, what a worker waits for, and findings.

/// Bytes of a message.
const MESSAGE: usize = 1_000;
/// Bytes of a detail or a hint.
const MORE: usize = 4_000;

/// Bytes of what is said here, with texts of shards in it.
const SAID: usize = 8_000;

/// A shard's own message.
pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

/// Its detail, or hint.
pub fn more(text: &str) -> String {
    clean(text, MORE)
}

/// What this master says.
pub fn said(text: &str) -> String {
    clean(text, SAID)
}

/// Without characters that a terminal obeys, and cut where it is too long.
fn clean(text: &str, most: usize) -> String {
    let kept = text.len().min(most);
    let kept = (0..=kept).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let mut cleaned: String =
        text[..kept].trim_end().chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect();
    if kept < text.len() {
        cleaned.push_str(&format!(" [cut, {} bytes in all]", text.len()));
    }
    cleaned
}

/// What a terminal does not show but does: controls, the ends of lines and paragraphs, what
/// turns the direction of a text, and what takes no place, by which two texts look the same.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE, message};

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        assert_eq!(message("a\u{1b}[31mb\nc\u{7}\u{202e}d \n"), "a [31mb c  d");
    }

    #[test]
    fn nothing_that_is_not_seen_is_left() {
        for c in "\u{85}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{2060}\u{2064}\u{feff}\u{e0001}\u{e0041}".chars() {
            assert_eq!(message(&format!("a{c}b")), "a b", "{}", c.escape_unicode());
        }
        // Letters, marks on them and blanks of other scripts are what they are.
        let text = "größe\u{a0}cafe\u{301} नमस्ते שלום 你好 🙂";
        assert_eq!(message(text), text);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(message(&"x".repeat(MESSAGE)), "x".repeat(MESSAGE));
        let cut = message(&"ä".repeat(MESSAGE));
        assert!(cut.len() < MESSAGE + 40 && cut.ends_with("[cut, 2000 bytes in all]"), "{cut}");
    }
}
