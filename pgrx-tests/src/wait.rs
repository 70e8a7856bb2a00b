//! Waiting for a condition, with a deadline. Nothing sleeps and hopes.

use crate::Result;
use std::time::{Duration, Instant};

/// Looks until `ready` gives a value; an error that names `what` at the deadline.
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

/// Between two calls of a client that goes on while others do something: more of them prove no more, and the processors
/// are everybody's.
pub fn rest() {
    std::thread::sleep(Duration::from_millis(3));
}

/// Looks until a query that returns one boolean says true.
pub fn until_true(client: &mut postgres::Client, what: &str, limit: Duration, query: &str) -> Result<()> {
    until(what, limit, || {
        let yes: Option<bool> = client.query_one(query, &[])?.get(0);
        Ok(yes.unwrap_or(false).then_some(()))
    })
}
