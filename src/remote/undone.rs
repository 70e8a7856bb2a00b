//! What is asked in a transaction of which nothing stays: in one of its own, or in a part of the one that is open.

use super::{Connection, RemoteError};

impl Connection {
    /// Undoes all that a body does, an error of its as well: what was open before goes on.
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
        // The first reason is the one to be told.
        let ended = self.run(end);
        let value = outcome?;
        ended?;
        Ok(value)
    }
}
