//! Waiting for a condition with a deadline. Tests do not just sleep and hope.

use crate::Result;
use std::time::{Duration, Instant};

/// Polls until `ready` gives a value. At the deadline it returns an error that names `what`.
pub fn until<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(format!("waited {limit:?} in vain for: {what}").into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The pause between two calls of a client that works while others do something. More calls would prove no
/// more, and would take processor time from others.
pub fn rest() {
    std::thread::sleep(Duration::from_millis(3));
}

/// Polls until a query that returns one boolean returns true.
pub fn until_true(client: &mut postgres::Client, what: &str, limit: Duration, query: &str) -> Result<()> {
    until(what, limit, || {
        let yes: Option<bool> = client.query_one(query, &[])?.get(0);
        Ok(yes.unwrap_or(false).then_some(()))
    })
}
