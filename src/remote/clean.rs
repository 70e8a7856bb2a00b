//! Texts of a shard, as they may be shown and stored here: its administrator, or whoever has
//! broken into it, could send any.

/// Bytes of a message.
const MESSAGE: usize = 1_000;
/// Bytes of a detail or a hint.
const MORE: usize = 4_000;

pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

pub fn more(text: &str) -> String {
    clean(text, MORE)
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

fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE, message};

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        assert_eq!(message("a\u{1b}[31mb\nc\u{7}\u{202e}d \n"), "a [31mb c  d");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(message(&"x".repeat(MESSAGE)), "x".repeat(MESSAGE));
        let cut = message(&"ä".repeat(MESSAGE));
        assert!(cut.len() < MESSAGE + 40 && cut.ends_with("[cut, 2000 bytes in all]"), "{cut}");
    }
}
