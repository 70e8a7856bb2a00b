//! Many statements in few messages: each message costs a round trip, whatever it contains.

use super::connection::Connection;
use super::error::RemoteError;
use super::result::Rows;
use std::time::{Duration, Instant};

/// The greatest number of bytes of statements in one message, except for a single longer one.
const MESSAGE: usize = 256 << 10;

impl Connection {
    /// Runs statements that return nothing, in their order. It needs an open transaction, since they may be sent in
    /// several messages.
    pub fn run_all(&mut self, statements: impl IntoIterator<Item = String>) -> Result<(), RemoteError> {
        let mut message = String::new();
        for statement in statements {
            if !message.is_empty() && message.len() + statement.len() > MESSAGE {
                self.run(&message)?;
                message.clear();
            }
            message.push_str(&statement);
            message.push_str(";\n");
        }
        if message.is_empty() { Ok(()) } else { self.run(&message).map(drop) }
    }

    /// Runs several statements in one message; returns the result of each.
    pub fn run_each(&mut self, statements: &[String], timeout: Duration) -> Result<Vec<Rows>, RemoteError> {
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        self.send(&statements.join(";\n"))?;
        let mut answers = self.collect(timeout, |all: &mut Vec<Rows>, next| {
            if all.len() < statements.len() {
                all.push(next);
            }
        })?;
        answers.resize_with(statements.len(), Rows::default);
        Ok(answers)
    }

    /// Runs transactions, each with its BEGIN and its COMMIT, in one message. If one fails, those after it are not
    /// begun: the error comes with the number of committed ones. The session is then in the failed one.
    pub fn run_transactions(&mut self, transactions: &[String]) -> Result<(), (usize, RemoteError)> {
        self.send(&transactions.join(";\n")).map_err(|error| (0, error))?;
        let mut committed = 0;
        let outcome = self.in_all(self.timeout, |session| {
            let mut failed = None;
            while let Some(result) = session.next_result(session.timeout)? {
                let answer = result.answer(session.shard())?;
                committed += usize::from(answer.is_ok() && result.is_commit());
                failed = failed.or(answer.err());
            }
            failed.map_or(Ok(()), Err)
        });
        outcome.map_err(|error| (committed.min(transactions.len().saturating_sub(1)), error))
    }
}

/// The number of things of a kind that are done together: one at first, twice as many each time as long as that is
/// quick, half as many if it takes long.
pub struct Together {
    count: usize,
    most: usize,
    began: Instant,
}

/// The longest time for things that are done together, before others are served again.
const LITTLE: Duration = Duration::from_secs(1);

impl Together {
    pub fn up_to(most: usize) -> Together {
        Together { count: 1, most, began: Instant::now() }
    }

    /// Returns how many are done now.
    pub fn begin(&mut self) -> usize {
        self.began = Instant::now();
        self.count
    }

    /// Notes that they are done.
    pub fn end(&mut self) {
        self.count = next(self.count, self.began.elapsed()).min(self.most);
    }
}

fn next(count: usize, took: Duration) -> usize {
    if took < LITTLE { count.saturating_mul(2) } else { (count / 2).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_are_done_together_as_long_as_it_takes_little() {
        assert_eq!(next(1, Duration::ZERO), 2);
        assert_eq!(next(16, LITTLE), 8);
        assert_eq!(next(1, LITTLE * 9), 1);
        let mut together = Together::up_to(3);
        let counts: Vec<usize> = (0..3)
            .map(|_| {
                let count = together.begin();
                together.end();
                count
            })
            .collect();
        assert_eq!(counts, [1, 2, 3]);
    }
}
