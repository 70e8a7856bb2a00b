//! What the writers of configurations share.

use crate::error::{Failure, SqlState};
use serde_json::Value;

/// A text for the gateway, and what its operator should know about it.
pub struct Config {
    pub text: String,
    pub warning: Option<Failure>,
}

/// The lines of a text, each that is not empty behind so many blanks.
pub fn indented(text: &str, blanks: usize) -> String {
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{:blanks$}{line}\n", "") };
    text.lines().map(line).collect()
}

/// A name in a comment or a message: one line, in quotes.
pub fn shown(name: &str) -> String {
    Value::from(name).to_string()
}

pub fn invalid(argument: &str, problem: impl std::fmt::Display) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("invalid value for \"{argument}\": {problem}"))
}
