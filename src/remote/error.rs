//! Errors on a shard, with the shard's name.

use super::params::Params;
use crate::clean;
use crate::error::{Failure, SqlState};
use std::time::Duration;
use thiserror::Error;

/// The SQLSTATE if the mover's identity could not be proven.
const NO_CREDENTIAL: SqlState = SqlState(*b"28P01");

/// An error reported by a shard, or by the connection to it.
#[derive(Clone, Debug, Error)]
#[error("shard \"{shard}\": {message}")]
pub struct RemoteError {
    /// The shard's key.
    pub shard: String,
    /// The server's SQLSTATE. `None` if the connection itself failed.
    pub sqlstate: Option<SqlState>,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// The constraint that a row has violated.
    pub constraint: Option<String>,
}

/// Returns a hint for an error for which the server itself gives none.
pub fn hint_of(sqlstate: Option<&str>) -> Option<String> {
    (sqlstate == Some("25006")).then(|| {
        "The server accepts no writes. Name the primary in the shard's connection string, or several hosts with target_session_attrs=read-write. Also see default_transaction_read_only there.".to_owned()
    })
}

/// Returns a hint for a failed connection, by words of the message: libpq gives no SQLSTATE, and messages of a server
/// in another language only match the last of these.
fn hint_of_connection(message: &str) -> String {
    const HINTS: &[(&[&str], &str)] = &[
        (
            &["certificate verify failed"],
            "The server's certificate has expired, or its authority is not in the connection string's sslrootcert. openssl s_client -starttls postgres -connect HOST:PORT shows it.",
        ),
        (
            &["role \"", "does not exist"],
            "The server runs, but has no such role. Create it there, or name another user in the shard's connection string.",
        ),
        (
            &["database \"", "does not exist"],
            "The server runs, but has no such database. Create it there, or name another one in the shard's connection string.",
        ),
        (
            &["no pg_hba.conf entry"],
            "The server runs, but refuses this master's mover. Add a line for it to pg_hba.conf there, and reload.",
        ),
        (
            &["password"],
            "The server runs, but no password was sent for that role. Store one with shard_credential_set(), and name it with shard_set_endpoint() for the mover or shard_login_set() for a login. Or use a password file of the master's operating-system user.",
        ),
        (
            &["authentication failed"],
            "The server runs, but does not accept the mover as that role. See its pg_hba.conf, its pg_ident.conf and its log.",
        ),
        (
            &["definition of service"],
            "The service file is that of the operating-system user who runs the master's server: ~/.pg_service.conf, or PGSERVICEFILE in the server's environment.",
        ),
        (
            &["could not translate host name"],
            "The master's server cannot resolve this host name. Check the shard's connection string and the name service.",
        ),
        (
            &["too many clients"],
            "The server runs, but has no free connection. Raise max_connections there, or end sessions. The call is repeated automatically.",
        ),
        (&["is starting up"], "The server is starting. The call is repeated automatically."),
        (&["is shutting down"], "The server is shutting down. Start it again."),
    ];
    let fits = |(words, _): &&(&[&str], &str)| words.iter().all(|word| message.contains(word));
    let known = HINTS.iter().find(fits).map(|(_, hint)| *hint);
    known
        .unwrap_or("Check that the server runs, and that the shard's connection string reaches it.")
        .to_owned()
}

impl RemoteError {
    pub fn connection(shard: &str, message: impl Into<String>) -> RemoteError {
        RemoteError {
            shard: shard.to_owned(),
            sqlstate: None,
            message: clean::message(&message.into()),
            detail: None,
            hint: None,
            constraint: None,
        }
    }

    fn state(self, sqlstate: SqlState) -> RemoteError {
        RemoteError { sqlstate: Some(sqlstate), ..self }
    }

    fn hint(self, hint: impl Into<String>) -> RemoteError {
        RemoteError { hint: Some(hint.into()), ..self }
    }

    pub fn no_answer(shard: &str, within: Duration) -> RemoteError {
        if within.is_zero() {
            // A caller without any time left has not waited for it.
            return RemoteError::connection(shard, "the deadline had passed before it could be asked");
        }
        let message = format!("no answer within {} s", within.as_secs_f64());
        let hint = "The server accepted the connection. Its pg_stat_activity shows what the session waits for. Or raise shardmaster.remote_timeout.";
        RemoteError::connection(shard, message).hint(hint)
    }

    /// Returns the error of an answer that did not come within the time that a caller has set.
    pub fn no_answer_to_caller(shard: &str, within: Duration) -> RemoteError {
        let hint = "Its pg_stat_activity shows whether a session is there and what it waits for. Or wait longer, for example timeout => '1 h'.";
        RemoteError::no_answer(shard, within).hint(hint)
    }

    /// Returns the error if no session can be opened without a credential, which may be added later.
    pub fn no_credential(shard: &str, message: &str, hint: &str) -> RemoteError {
        RemoteError::connection(shard, message).state(NO_CREDENTIAL).hint(hint)
    }

    /// Adapts the error of a session that began with a credential of the keychain: it may be set anew at any moment,
    /// while the shard already has the new one.
    pub fn of_credential(mut self, alias: &str) -> RemoteError {
        if self.sqlstate.is_none() && self.is_refusal() {
            self.sqlstate = Some(NO_CREDENTIAL);
            self.message = format!("credential \"{alias}\" is refused: {}", self.message);
            self.hint = Some(format!(
                "The shard refuses credential \"{alias}\". Set the one it accepts with shard_credential_set(), or see its pg_hba.conf and its log."
            ));
        }
        self
    }

    /// Removes secrets from the error of a session that is being opened: answers may contain what it was given.
    pub fn concealing(mut self, params: &Params) -> RemoteError {
        self.message = params.conceal(&self.message);
        self.detail = self.detail.map(|text| params.conceal(&text));
        self.hint = self.hint.map(|text| params.conceal(&text));
        self
    }

    /// Returns the error of a shard whose answer is no longer wanted.
    pub fn not_wanted(shard: &str) -> RemoteError {
        RemoteError::connection(shard, "the caller no longer waits for it")
    }

    /// Adds what was asked, if nothing else shows it: the connection is gone, or the answer did not come in time.
    pub fn asked(mut self, question: &str) -> RemoteError {
        if self.sqlstate.is_none() || self.is("57014") || self.is_lock_timeout() {
            self.message = format!("{question}: {}", self.message);
        }
        self
    }

    /// Returns the error of rows that are not what was sent: trying again would not help.
    pub fn of_data(shard: &str, message: String) -> RemoteError {
        let hint = "Something on the target removes rows. Check its triggers and rules.";
        RemoteError::connection(shard, message).state(SqlState::NOT_IN_STATE).hint(hint)
    }

    /// Returns the error of rows that the source should not have sent.
    pub fn out_of_scope(shard: &str, message: String, detail: String, hint: String) -> RemoteError {
        let error = RemoteError::connection(shard, clean::message(&message));
        RemoteError { detail: Some(detail), ..error.state(SqlState::parse("SM006")).hint(hint) }
    }

    /// Returns the error of a number that no honest shard reports.
    pub fn no_number(shard: &str, what: &str, text: &str) -> RemoteError {
        let message = clean::message(&format!("{what} cannot be {text}"));
        let hint = "No split has written that number. Find out who has changed the tables of schema shardmaster_agent there, or what that server is, before anything else.";
        RemoteError::connection(shard, message).state(SqlState::NOT_IN_STATE).hint(hint)
    }

    /// Returns the error of an answer in a form that does not fit the question: asking again would not help.
    pub fn unreadable(shard: &str, error: impl std::fmt::Display) -> RemoteError {
        let message = clean::message(&format!("unexpected answer: {error}"));
        let hint = "This is not how a PostgreSQL server answers. Find out what the shard's connection string leads to.";
        RemoteError::connection(shard, message).state(SqlState::NOT_IN_STATE).hint(hint)
    }

    /// Returns the error of more bytes than a copy may copy at once.
    pub fn too_large(shard: &str, limit: u64) -> RemoteError {
        let message = format!("more than {} MB of changed rows", limit >> 20);
        RemoteError::connection(shard, message).state(SqlState::parse("54000"))
    }

    /// Returns the error of a row that is longer than permitted.
    pub fn row_too_long(shard: &str, limit: u64) -> RemoteError {
        let message = format!("a row of more than {} MB", limit >> 20);
        let hint = "Raise shardmaster.max_row_size, of which a worker needs twice as much memory. Or make the row shorter. Then resume the split with the call that it stopped in.";
        RemoteError::connection(shard, message).state(SqlState::ROW_TOO_LONG).hint(hint)
    }

    /// Adds the table of a row that was too long, or had a value that the other server does not accept.
    pub fn of_table(mut self, table: &str) -> RemoteError {
        let is_of_value = self.sqlstate.is_some_and(|state| state.0.starts_with(b"22"));
        if is_of_value || self.sqlstate == Some(SqlState::ROW_TOO_LONG) {
            self.message = format!("{} in table {table}", self.message);
        }
        self
    }

    /// Returns the error of an answer that is longer than that to any question of this library.
    pub fn flooded(shard: &str, limit: u64) -> RemoteError {
        let message = format!("an answer of more than {} MB", limit >> 20);
        let hint = "No answer that a split needs is as long. Find out who has changed the tables of schema shardmaster_agent there.";
        RemoteError::connection(shard, message).state(SqlState::parse("54000")).hint(hint)
    }

    /// Returns the error of a notification, which no session asks for.
    pub fn notified(shard: &str) -> RemoteError {
        let hint = "No session of a split listens. Something that runs with the mover's rights does, or a pooler has shared its session.";
        RemoteError::connection(shard, "an unexpected notification").state(SqlState::NOT_IN_STATE).hint(hint)
    }

    /// Returns the error of something other than an answer to an empty query.
    pub fn wrong_sign(shard: &str, limit: usize) -> RemoteError {
        let message = format!("an invalid answer to an empty query, or one longer than {} kB", limit >> 10);
        let hint = "A PostgreSQL server returns nothing for an empty query. Find out what answers in the server's place.";
        RemoteError::connection(shard, message).state(SqlState::parse("54000")).hint(hint)
    }

    pub fn is(&self, code: &str) -> bool {
        self.sqlstate.is_some_and(|state| state.as_str() == code)
    }

    /// Whether it is a lock that was not granted in time.
    pub fn is_lock_timeout(&self) -> bool {
        self.is("55P03") || self.is("40P01")
    }

    /// Whether it is the server's verdict on the question itself, which it would repeat.
    pub fn is_verdict(&self) -> bool {
        self.sqlstate.is_some() && !self.is_transient()
    }

    /// Whether the error may go away without action: a lost connection, a server that starts or stops or is a standby
    /// that is not promoted yet, a conflict, a lock or statement timeout, too many connections.
    pub fn is_transient(&self) -> bool {
        let Some(state) = self.sqlstate else { return !self.is_refusal() };
        let code = state.as_str();
        code.starts_with("08")
            || code.starts_with("57P")
            || matches!(
                code,
                "25006" | "40001" | "40P01" | "55P03" | "57014" | "53300" | "25P03" | "57P05" | "28P01"
            )
            || self.lacks_extension()
    }

    /// Whether it is the missing hash of an extension that has been dropped: the next session uses the agent's. A
    /// missing function that a value names, for example of type regprocedure, is not meant: another session does not
    /// help, and its name is in quotes, in any language.
    fn lacks_extension(&self) -> bool {
        const ARGUMENTS: [&str; 3] = ["bigint", "text", "uuid"];
        let behind = ARGUMENTS
            .iter()
            .find_map(|first| self.message.split_once(&format!(".shard_for({first}, integer)")));
        let Some((before, after)) = behind else { return false };
        let is_quoted =
            after.contains(|c| "\"\u{bb}\u{ab}\u{201c}\u{201d}\u{201e}\u{300d}\u{300f}".contains(c));
        self.is("42883") && !before.ends_with("shardmaster_agent") && !is_quoted
    }

    /// Whether it is a refusal. libpq reports what a server refuses during the start of a connection without a
    /// SQLSTATE; wrong credentials and names do not become right by trying again.
    fn is_refusal(&self) -> bool {
        ["password", "authentication", "no pg_hba.conf entry", "does not exist", "definition of service"]
            .iter()
            .any(|text| self.message.contains(text) && !self.message.contains("No such file"))
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Failure {
        let sqlstate = error.sqlstate.unwrap_or(SqlState::CONNECTION_FAILURE);
        let mut failure = Failure::new(sqlstate, error.to_string());
        failure.detail = error.detail;
        failure.hint =
            error.hint.or_else(|| error.sqlstate.is_none().then(|| hint_of_connection(&error.message)));
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_is_not_told_to_look_whether_the_server_runs() {
        let hint =
            |message: &str| Failure::from(RemoteError::connection("a", message)).hint.unwrap_or_default();
        for (message, word) in [
            (
                "connection to server on socket \"/s\" failed: FATAL:  role \"nobody\" does not exist",
                "no such role",
            ),
            (
                "connection to server at \"h\" failed: FATAL:  database \"nothing\" does not exist",
                "no such database",
            ),
            ("FATAL:  no pg_hba.conf entry for host \"::1\", user \"mover\"", "pg_hba.conf"),
            ("fe_sendauth: no password supplied", "shard_credential_set"),
            ("definition of service \"far\" not found", "pg_service.conf"),
            ("could not translate host name \"nowhere\" to address", "cannot resolve this host name"),
            ("connection refused", "Check that the server runs"),
        ] {
            assert!(hint(message).contains(word), "{message}: {}", hint(message));
        }
    }

    fn undefined(message: &str) -> RemoteError {
        let sqlstate = Some(SqlState::parse("42883"));
        RemoteError { sqlstate, ..RemoteError::connection("a", message) }
    }

    #[test]
    fn the_hash_of_an_extension_that_is_gone_is_taken_from_elsewhere() {
        for text in [
            "function public.shard_for(bigint, integer) does not exist",
            "function \"A b\".shard_for(text, integer) does not exist",
            "Funktion ext.shard_for(uuid, integer) existiert nicht",
            "la fonction ext.shard_for(uuid, integer) n'existe pas",
        ] {
            assert!(undefined(text).is_transient(), "{text}");
        }
    }

    #[test]
    fn a_function_that_a_value_names_does_not_come_by_trying_again() {
        for text in [
            "function \"a.shard_for(bigint, integer)\" does not exist",
            "function \"a.shard_for(integer)\" does not exist",
            "Funktion »a.shard_for(bigint, integer)« existiert nicht",
            "Funktion „a.shard_for(bigint, integer)“ existiert nicht",
            "la fonction « a.shard_for(bigint, integer) » n'existe pas",
            "function a.shard_for(point) does not exist",
            "function shardmaster_agent.shard_for(bigint, integer) does not exist",
        ] {
            assert!(!undefined(text).is_transient(), "{text}");
        }
    }
}
