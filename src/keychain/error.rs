//! What can be wrong with a credential or with the key that it is sealed under. None of it has a
//! secret in it.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Clone, Debug, Error)]
pub enum KeychainError {
    #[error("no master key is set")]
    NoMasterKey,
    #[error("the master key cannot be read: {0}")]
    MasterKey(String),
    #[error("credential \"{alias}\" is sealed under master key {key}, which is not here")]
    OtherKey { alias: String, key: String },
    #[error("credential \"{0}\" has been changed, or is another one's")]
    Changed(String),
    #[error("credential \"{0}\" cannot be sealed")]
    Sealing(String),
    #[error("invalid secret of kind \"{kind}\": {problem}")]
    Secret { kind: &'static str, problem: String },
    #[error("no token: {0}")]
    Token(String),
}

impl KeychainError {
    pub fn hint(&self) -> &'static str {
        match self {
            KeychainError::NoMasterKey => {
                "Set shardmaster.master_key_file to a file outside of the data directory with a line of 64 hexadecimal digits (openssl rand -hex 32), or shardmaster.master_key_command, and reload the server."
            }
            KeychainError::MasterKey(_) => {
                "Look at shardmaster.master_key_file, shardmaster.master_key_command and SHARDMASTER_MASTER_KEY in the environment of the server."
            }
            KeychainError::OtherKey { .. } => {
                "Add that key as a further line of what shardmaster.master_key_file or shardmaster.master_key_command gives, or set the credential anew with shard_credential_set()."
            }
            KeychainError::Changed(_) => {
                "Set it anew with shard_credential_set(), or drop it with shard_credential_drop() where no shard uses it."
            }
            KeychainError::Sealing(_) => "The server has no random numbers to give.",
            KeychainError::Secret { .. } => "docs/operate/credentials.md has an example of each kind.",
            KeychainError::Token(_) => {
                "Run it as the user of the operating system that the master's server runs as."
            }
        }
    }

    fn sqlstate(&self) -> SqlState {
        match self {
            KeychainError::Secret { .. } => SqlState::INVALID_VALUE,
            KeychainError::Changed(_) => SqlState::parse("XX001"),
            _ => SqlState::NOT_IN_STATE,
        }
    }
}

impl From<KeychainError> for Failure {
    fn from(error: KeychainError) -> Failure {
        Failure::new(error.sqlstate(), error.to_string()).hint(error.hint())
    }
}
