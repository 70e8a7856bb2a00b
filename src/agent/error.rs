//! Why a step of a split has failed, and what follows from it.

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
    /// A condition that may end without an operator, in words for `waiting_for`.
    #[error("{0}")]
    Retry(String),
    /// An error that needs an operator.
    #[error("{0}")]
    Failed(Failure),
    /// The tables have changed. Once both sides are alike again the split continues.
    #[error("{0}")]
    Reshaped(Failure),
    /// A shard does not know the split. Otherwise this is treated like `Reshaped`.
    #[error("{0}")]
    NotInstalled(Failure),
    /// A cutover that was aborted: it is reversed, and the split continues to follow its source.
    #[error("{0}")]
    Aborted(Failure),
    /// A newer worker has taken over: this one ends silently.
    #[error("another worker has taken over")]
    Superseded,
    /// A shard knows a generation that is not below the worker's own: either a newer worker has taken over, or the
    /// master was restored to an earlier time.
    #[error("shard \"{shard}\" knows generation {generation}")]
    Behind { shard: String, generation: i64 },
}

impl From<Failure> for SplitError {
    fn from(failure: Failure) -> SplitError {
        SplitError::Failed(failure)
    }
}

impl SplitError {
    /// Makes an error that needs an operator.
    pub fn failed(sqlstate: SqlState, message: impl Into<String>, hint: impl Into<String>) -> SplitError {
        SplitError::Failed(Failure::new(sqlstate, message).hint(hint))
    }

    /// Makes the error of a statement whose names mean something else by now.
    pub fn renamed(error: &RemoteError) -> SplitError {
        SplitError::Retry(format!("{}: names that have just changed", error.message))
    }

    /// Makes the error of a statement that creates something: with one of these states, another split has been faster.
    pub fn of_another_split(error: RemoteError, states: [&str; 3]) -> SplitError {
        if states.iter().any(|state| error.is(state)) {
            return SplitError::Retry(format!("another split on shard \"{}\"", error.shard));
        }
        error.into()
    }

    /// Whether the worker tries again automatically.
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

    /// Returns the error as it is stored with the plan.
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
