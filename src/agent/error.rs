//! Why a step of a split did not end well, and what follows from it.

use crate::error::{Failure, SqlState};
use crate::remote::RemoteError;
use crate::server::injection::InjectedFault;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SplitError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Injected(#[from] InjectedFault),
    /// What may pass by itself, in words for `waiting_for`.
    #[error("{0}")]
    Retry(String),
    /// What an operator must look at.
    #[error("{0}")]
    Failed(Failure),
    /// Tables are not what they were. Once both sides are alike again the split goes on.
    #[error("{0}")]
    Reshaped(Failure),
    /// The same: a shard that does not know the split.
    #[error("{0}")]
    NotInstalled(Failure),
    /// A cutover that was aborted: it is set back and the split goes on following.
    #[error("{0}")]
    Aborted(Failure),
    /// A newer worker has taken over: this one ends without another word.
    #[error("another worker has taken over")]
    Superseded,
    /// A shard knows a generation that is not below the worker's own: either a newer worker
    /// has taken over, or the master was restored from a time before.
    #[error("shard \"{shard}\" knows generation {generation}")]
    Behind { shard: String, generation: i64 },
}

impl From<Failure> for SplitError {
    fn from(failure: Failure) -> SplitError {
        SplitError::Failed(failure)
    }
}

impl SplitError {
    /// A failure that needs an operator.
    pub fn failed(sqlstate: SqlState, message: impl Into<String>, hint: impl Into<String>) -> SplitError {
        SplitError::Failed(Failure::new(sqlstate, message).hint(hint))
    }

    /// Whether the worker tries again by itself.
    pub fn is_transient(&self) -> bool {
        match self {
            SplitError::Remote(error) => error.is_transient(),
            SplitError::Injected(_) | SplitError::Retry(_) | SplitError::Reshaped(_) => true,
            SplitError::Failed(_)
            | SplitError::NotInstalled(_)
            | SplitError::Aborted(_)
            | SplitError::Superseded
            | SplitError::Behind { .. } => false,
        }
    }

    /// As it is stored with the plan.
    pub fn into_failure(self) -> Failure {
        match self {
            SplitError::Remote(error) => error.into(),
            SplitError::Failed(failure)
            | SplitError::Reshaped(failure)
            | SplitError::NotInstalled(failure)
            | SplitError::Aborted(failure) => failure,
            SplitError::Injected(fault) => Failure::new(SqlState::INTERNAL, fault.to_string()),
            SplitError::Retry(reason) => Failure::new(SqlState::NOT_IN_STATE, reason),
            SplitError::Superseded => Failure::new(SqlState::NOT_IN_STATE, "another worker has taken over"),
            SplitError::Behind { .. } => Failure::new(SqlState::NOT_IN_STATE, self.to_string()),
        }
    }
}

pub type Result<T> = std::result::Result<T, SplitError>;
