//! Connection strings: what libpq reads in them, and what clients may see of them.

use crate::error::{Failure, SqlState};
use std::ffi::{CStr, CString, c_char};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ConninfoError {
    #[error("invalid connection string")]
    Invalid { detail: Option<String> },
    #[error("connection string contains a control character")]
    Control { keyword: String },
    #[error("connection string contains a password")]
    Password { keyword: String },
}

impl From<ConninfoError> for Failure {
    fn from(error: ConninfoError) -> Failure {
        let failure = Failure::new(SqlState::INVALID_VALUE, error.to_string());
        match error {
            ConninfoError::Invalid { detail: Some(detail) } => failure.detail(detail),
            ConninfoError::Invalid { detail: None } => {
                failure.hint("Write it as keyword=value pairs or as a postgresql:// URI, as for psql.")
            }
            ConninfoError::Control { keyword } => failure
                .detail(format!("The keyword is \"{keyword}\"."))
                .hint("Values must not contain line breaks or other control characters, because gateways' configurations contain them."),
            ConninfoError::Password { keyword } => failure
                .detail(format!("The keyword is \"{keyword}\"."))
                .hint("Store it with shard_credential_set() and name it as the shard's credential_alias. Or use a password file (passfile=) or a service (service=) of the master's operating-system user."),
        }
    }
}

/// The contents of a connection string: the keywords that have a value, in libpq's order. Defaults and services are
/// not resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conninfo(Vec<(String, String)>);

/// Keywords whose values are always secret; the last three are those of libpq 18.
const SECRETS: [&str; 5] =
    ["password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"];

/// The keywords that a client gets. It is a list of what is kept: a keyword that a later libpq adds may contain a path
/// or a secret.
const FOR_CLIENTS: [&str; 21] = [
    "host",
    "hostaddr",
    "port",
    "dbname",
    "sslmode",
    "sslnegotiation",
    "sslcompression",
    "sslsni",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "channel_binding",
    "require_auth",
    "gssencmode",
    "target_session_attrs",
    "load_balance_hosts",
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
];

impl Conninfo {
    /// Parses a string as libpq does.
    pub fn parse(text: &str) -> Result<Conninfo, ConninfoError> {
        let invalid = || ConninfoError::Invalid { detail: None };
        let text_c = CString::new(text).map_err(|_| invalid())?;
        let options = parse_with_libpq(&text_c).map_err(|message| ConninfoError::Invalid {
            detail: message.filter(|_| !may_hold_secret(text)),
        })?;
        Ok(Conninfo(options))
    }

    /// Parses a string that is to be stored: one with a password in it is refused.
    pub fn parse_without_secret(text: &str) -> Result<Conninfo, ConninfoError> {
        Conninfo::parse(text)?.without_secret()
    }

    fn without_secret(self) -> Result<Conninfo, ConninfoError> {
        if let Some(keyword) = SECRETS.into_iter().find(|keyword| self.get(keyword).is_some()) {
            return Err(ConninfoError::Password { keyword: keyword.into() });
        }
        match self.0.iter().find(|(_, value)| value.chars().any(char::is_control)) {
            Some((keyword, _)) => Err(ConninfoError::Control { keyword: keyword.clone() }),
            None => Ok(self),
        }
    }

    /// Returns a keyword's value; an empty one counts as not given, as for libpq.
    pub fn get(&self, keyword: &str) -> Option<&str> {
        self.0.iter().find(|(k, v)| k == keyword && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Returns keywords and their values, as they were given.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(keyword, value)| (keyword.as_str(), value.as_str()))
    }

    /// Returns a copy with another value of a keyword; an empty one removes the keyword.
    pub fn with(mut self, keyword: &str, value: &str) -> Conninfo {
        self.0.retain(|(known, _)| known != keyword);
        if !value.is_empty() {
            self.0.push((keyword.to_owned(), value.to_owned()));
        }
        self
    }

    /// Returns it as keyword=value pairs.
    pub fn text(&self) -> String {
        let given = self.0.iter().filter(|(_, value)| !value.is_empty());
        pairs_text(given)
    }

    /// Returns the pairs without those of these keywords.
    pub fn without(&self, keywords: &[&str]) -> Conninfo {
        let others = self
            .0
            .iter()
            .filter(|(keyword, value)| !value.is_empty() && !keywords.contains(&keyword.as_str()));
        Conninfo(others.cloned().collect())
    }

    /// Returns where it leads to: the host, or its address.
    pub fn host(&self) -> Option<&str> {
        self.get("host").or_else(|| self.get("hostaddr"))
    }

    /// Returns the port, or None if it is not one number (there may be one for each of several hosts).
    pub fn port(&self) -> Option<i32> {
        self.get("port").and_then(|port| port.parse().ok())
    }

    /// Returns the same place for a client: without the mover's user, secrets, file paths and session options. A
    /// service stays if nothing else determines the server: without it the client would silently reach its own default
    /// server.
    pub fn for_client(&self) -> String {
        let service_only = self.host().is_none();
        let kept = self.0.iter().filter(|(keyword, value)| {
            !value.is_empty()
                && (FOR_CLIENTS.contains(&keyword.as_str()) || (service_only && keyword == "service"))
        });
        pairs_text(kept)
    }
}

fn pairs_text<'a>(pairs: impl Iterator<Item = &'a (String, String)>) -> String {
    pairs.map(|(keyword, value)| format!("{keyword}={}", quote(value))).collect::<Vec<_>>().join(" ")
}

/// Returns the user of a connection string that names none, from the environment or the server's account.
pub fn default_user() -> Option<String> {
    // SAFETY: the list is allocated for us and freed below; the call neither blocks nor calls into the server.
    let options = unsafe { pq_sys::PQconndefaults() };
    (!options.is_null())
        .then(|| take_options(options))?
        .into_iter()
        .find(|(keyword, _)| keyword == "user")
        .map(|(_, user)| user)
}

/// Returns a value in libpq's keyword/value syntax.
pub fn quote(value: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Whether a text may contain parts of a password: libpq's messages repeat parts of the string.
fn may_hold_secret(text: &str) -> bool {
    let uri = text.starts_with("postgresql://") || text.starts_with("postgres://");
    let text = text.to_ascii_lowercase();
    uri || ["pass", "secret", "scram"].iter().any(|word| text.contains(word))
}

/// Parses with libpq. The error is libpq's message, if it gave one.
fn parse_with_libpq(text: &CStr) -> Result<Vec<(String, String)>, Option<String>> {
    let mut message: *mut c_char = std::ptr::null_mut();
    // SAFETY: the text is NUL-terminated and outlives the call; the function neither blocks nor calls into the server.
    // The message, if any, is ours to free.
    let options = unsafe { pq_sys::PQconninfoParse(text.as_ptr(), &mut message) };
    if options.is_null() {
        return Err(take_message(message));
    }
    Ok(take_options(options))
}

/// Returns those options that have a value, and frees the list.
fn take_options(options: *mut pq_sys::PQconninfoOption) -> Vec<(String, String)> {
    let mut found = Vec::new();
    // SAFETY: the list ends with an entry whose keyword is NULL; its strings are NUL-terminated and live until
    // PQconninfoFree, which is called last.
    unsafe {
        let mut option = options;
        while !(*option).keyword.is_null() {
            if !(*option).val.is_null() {
                let text = |p| CStr::from_ptr(p).to_string_lossy().into_owned();
                found.push((text((*option).keyword), text((*option).val)));
            }
            option = option.add(1);
        }
        pq_sys::PQconninfoFree(options);
    }
    found
}

fn take_message(message: *mut c_char) -> Option<String> {
    if message.is_null() {
        return None;
    }
    // SAFETY: this is a NUL-terminated string that libpq allocated for us, freed once.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().trim_end().to_owned();
        pq_sys::PQfreemem(message.cast());
        text
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::{Conninfo, SECRETS};
    use crate::properties::hold;
    use proptest::prelude::*;

    #[test]
    fn what_a_later_libpq_keeps_secret_is_not_stored() {
        for keyword in SECRETS {
            let conninfo = |value: &str| Conninfo(vec![(keyword.to_owned(), value.to_owned())]);
            assert!(conninfo("x").without_secret().is_err(), "{keyword}");
            assert!(conninfo("").without_secret().is_ok(), "{keyword}");
            assert_eq!(conninfo("x").for_client(), "");
            // An older libpq repeats keywords that it does not know.
            assert!(super::may_hold_secret(&format!("{}='sEcret", keyword.to_uppercase())), "{keyword}");
        }
    }

    #[test]
    fn libpq_reads_what_was_written_for_it() {
        let value = || prop_oneof!["['\"\\\\= a]{0,6}", "[^\u{0}]{0,8}"];
        hold((value(), value(), value()), |values| {
            let pairs = [("dbname", values.0), ("host", values.1), ("application_name", values.2)];
            let written =
                pairs.into_iter().fold(Conninfo::default(), |all, (key, value)| all.with(key, &value));
            let read = Conninfo::parse(&written.text()).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
            for keyword in ["dbname", "host", "application_name"] {
                prop_assert_eq!(read.get(keyword), written.get(keyword));
            }
            prop_assert_eq!(read.pairs().count(), written.pairs().count());
            Ok(())
        });
    }
}
