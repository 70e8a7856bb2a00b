//! The errors of credentials and of the keys that encrypt them. None of them contains a secret.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Clone, Debug, Error)]
pub enum KeychainError {
    #[error("no master key is set")]
    NoMasterKey,
    #[error("the master key cannot be read: {0}")]
    MasterKey(String),
    #[error("credential \"{alias}\" is encrypted with master key {key}, which is missing")]
    OtherKey { alias: String, key: String },
    #[error("credential \"{0}\" was changed, or belongs to another credential")]
    Changed(String),
    #[error("credential \"{0}\" cannot be encrypted")]
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
                "Set shardmaster.master_key_file or shardmaster.master_key_command, and reload the server. The file, outside of the data directory, has a line of 64 hexadecimal digits, as openssl rand -hex 32 makes it."
            }
            KeychainError::MasterKey(_) => {
                "Check shardmaster.master_key_file, shardmaster.master_key_command, and SHARDMASTER_MASTER_KEY in the environment of the server."
            }
            KeychainError::OtherKey { .. } => {
                "Add that key as another line to the master key file or to the command's output. Otherwise set the credential again with shard_credential_set()."
            }
            KeychainError::Changed(_) => {
                "Set it again with shard_credential_set(). If no shard uses it, drop it with shard_credential_drop()."
            }
            KeychainError::Sealing(_) => "The server cannot generate random numbers.",
            KeychainError::Secret { .. } => "docs/operate/credentials.md has an example of each kind.",
            KeychainError::Token(_) => "Run it as the operating-system user of the master's server.",
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
