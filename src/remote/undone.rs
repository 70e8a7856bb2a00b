//! Queries in a transaction that is rolled back: in one of its own, or in a subtransaction of the open one.

use super::result::Rows;
use super::{Connection, RemoteError};
use std::time::Duration;

impl Connection {
    /// Undoes all that a body does, also after an error: an open transaction continues.
    pub fn undone<T, E: From<RemoteError>>(
        &mut self,
        body: impl FnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let [begin, end] = if self.is_in_transaction() {
            ["SAVEPOINT aside", "ROLLBACK TO SAVEPOINT aside; RELEASE SAVEPOINT aside"]
        } else {
            ["BEGIN", "ROLLBACK"]
        };
        self.run(begin)?;
        let outcome = body(self);
        // The first error is the one to be returned.
        let ended = self.run(end);
        let value = outcome?;
        ended?;
        Ok(value)
    }

    /// Runs a query after statements that make its functions, and undoes all. Returns None if the query did not end
    /// within some time.
    pub fn undone_within(
        &mut self,
        limit: Duration,
        functions: &str,
        query: &str,
    ) -> Result<Option<Rows>, RemoteError> {
        let limit = limit.as_millis();
        let message = format!("{functions}; SET LOCAL statement_timeout = '{limit}ms'; {query}");
        match self.undone(|session| session.run(&message)) {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if error.is("57014") => Ok(None),
            Err(error) => Err(error),
        }
    }
}
