//! Queries in a transaction that is rolled back: in one of its own, or in a subtransaction of the open one.

use super::{Connection, RemoteError};

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
}
