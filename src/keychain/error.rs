//! The errors of credentials and of the keys that encrypt them. None of them contains a secret.

use crate::error::{Failure, SqlState};

/// The SQLSTATE of a credential that was changed: its row is damaged, while other credentials may only lack their key.
pub const CHANGED: SqlState = SqlState(*b"XX001");

pub fn no_master_key() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "no master key is set").hint(
        "Set shardmaster.master_key_file or shardmaster.master_key_command, and reload the server. The file, outside of the data directory, has a line of 64 hexadecimal digits, as openssl rand -hex 32 makes it.",
    )
}

pub fn unreadable_master_key(problem: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("the master key cannot be read: {problem}")).hint(
        "Check shardmaster.master_key_file, shardmaster.master_key_command, and SHARDMASTER_MASTER_KEY in the environment of the server.",
    )
}

pub fn other_key(alias: &str, key: &str) -> Failure {
    let message = format!("credential \"{alias}\" is encrypted with master key {key}, which is missing");
    Failure::new(SqlState::NOT_IN_STATE, message).hint(
        "Add that key as another line to the master key file or to the command's output. Otherwise set the credential again with shard_credential_set().",
    )
}

pub fn changed(alias: &str) -> Failure {
    Failure::new(CHANGED, format!("credential \"{alias}\" was changed, or belongs to another credential")).hint(
        "Set it again with shard_credential_set(). If no shard uses it, drop it with shard_credential_drop().",
    )
}

pub fn cannot_be_encrypted(alias: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("credential \"{alias}\" cannot be encrypted"))
        .hint("The server cannot generate random numbers.")
}

pub fn invalid_secret(kind: &str, problem: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("invalid secret of kind \"{kind}\": {problem}"))
        .hint("docs/operate/credentials.md has an example of each kind.")
}

pub fn no_token(problem: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("no token: {problem}"))
        .hint("Run it as the operating-system user of the master's server.")
}
