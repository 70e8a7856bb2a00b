//! Cuts and cleans texts of a shard, so that they can be shown and stored here: its administrator, or an intruder, can
//! send anything. The errors of a shard are cut where they come in. Other texts of a shard in this master's messages
//! (names of tables, roles and sessions, keys, expressions) are cut and cleaned where they leave: in the errors of
//! calls, in the stored state of a split, its history, the log, the reason why a worker waits, and findings.

/// The greatest number of bytes of a message.
const MESSAGE: usize = 1_000;
/// The greatest number of bytes of a detail or a hint.
const MORE: usize = 4_000;

/// The greatest number of bytes of this master's own message, with texts of shards in it.
const SAID: usize = 8_000;

/// Cleans a message of a shard.
pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

/// Cleans a detail or a hint of a shard.
pub fn more(text: &str) -> String {
    clean(text, MORE)
}

/// Cleans a message of this master.
pub fn printable(text: &str) -> String {
    clean(text, SAID)
}

/// Removes characters that a terminal obeys, and cuts the text if it is too long.
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

/// Whether a terminal obeys the character instead of showing it: controls, the ends of lines and paragraphs,
/// characters that turn the direction of a text, and characters without width, with which two different texts look
/// alike.
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
        // Letters, combining marks and blanks of other scripts are kept.
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
