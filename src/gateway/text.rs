//! Functions that the writers of configurations share.

use crate::error::Failure;
use serde_json::Value;

/// A text for the gateway, and a warning for its operator.
pub struct Config {
    pub text: String,
    pub warning: Option<Failure>,
}

/// Indents each line that is not empty by this many blanks.
pub fn indented(text: &str, blanks: usize) -> String {
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{:blanks$}{line}\n", "") };
    text.lines().map(line).collect()
}

/// Returns a name for a comment or a message: one line, in quotes.
pub fn shown(name: &str) -> String {
    Value::from(name).to_string()
}
