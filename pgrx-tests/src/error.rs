//! One error type for all test code: a text that a person can act on, and the server's SQLSTATE if there is one.

use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone)]
pub struct Error {
    text: String,
    sqlstate: Option<String>,
}

impl Error {
    /// Returns the server's SQLSTATE, or `None` if the error does not come from a server.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Whether the server went away. It may have carried out the request.
    pub fn is_lost(&self) -> bool {
        self.sqlstate.as_deref().is_none_or(|state| state.starts_with("57P"))
    }

    /// Adds to the error what was attempted.
    pub fn context(mut self, what: &str) -> Error {
        self.text = format!("{what}: {}", self.text);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text that a failing `unwrap` in a test prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Error {
        let sqlstate = error.code().map(|code| code.code().to_owned());
        Error { text: describe(&error), sqlstate }
    }
}

/// Returns message, SQLSTATE, detail and hint. The driver's `Display` prints only "db error".
fn describe(error: &postgres::Error) -> String {
    let Some(db) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return format!("{error}{}", cause.unwrap_or_default());
    };
    let mut text = format!("{} ({})", db.message(), db.code().code());
    for (label, part) in [("DETAIL", db.detail()), ("HINT", db.hint())] {
        if let Some(part) = part {
            text += &format!("; {label}: {part}");
        }
    }
    text
}

macro_rules! from_display {
    ($($type:ty),+) => {
        $(impl From<$type> for Error {
            fn from(error: $type) -> Error {
                Error { text: error.to_string(), sqlstate: None }
            }
        })+
    };
}

from_display!(
    String,
    &str,
    std::io::Error,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::time::SystemTimeError,
    fmt::Error
);
