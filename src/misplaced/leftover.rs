//! Sessions on shards that may be left of a run: they are ended, and what they were about to do has come to its end then.

use super::error::MisplacedError;
use crate::catalog::caller::Caller;
use crate::catalog::execution::Backend;
use crate::catalog::{misplaced_run, shard};
use crate::error::Failure;
use crate::query::login::{self, Way};
use crate::query::opening::Manners;
use crate::query::sessions::Sessions;
use crate::remote::fan_out::Question;
use crate::remote::quote::literal;
use std::time::{Duration, Instant};

/// As the caller's login on a shard.
pub fn way(shard: &str, timeout: Duration) -> Result<Way, Failure> {
    Caller::as_owner(|caller| login::entrance(&login::role_of(caller)?, &shard::by_key(shard)?, timeout))
}

/// Returns once none of them is there.
pub fn end(id: i64, timeout: Duration) -> Result<(), Failure> {
    let left = Caller::as_owner(|_| misplaced_run::sessions(id));
    if left.is_empty() {
        return Ok(());
    }
    let shards: Vec<String> = left.iter().map(|(shard, _)| shard.clone()).collect();
    let ways = shards.iter().map(|shard| way(shard, timeout)).collect::<Result<Vec<Way>, Failure>>()?;
    let mut sessions = Sessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let questions: Vec<String> = left.iter().map(|(_, backend)| question(backend)).collect();
    let until = Instant::now() + timeout;
    loop {
        let answers = sessions.ask(|number| questions.get(number).cloned().map(Question::Own))?;
        let is_there =
            answers.iter().position(|rows| rows.as_ref().is_some_and(|rows| !rows.rows.is_empty()));
        let Some(number) = is_there else { return Ok(()) };
        if Instant::now() > until {
            return Err(MisplacedError::Left(shards.get(number).cloned().unwrap_or_default()).into());
        }
        sessions.ask(|_| Some(Question::Own("SELECT pg_catalog.pg_sleep(0.02)".to_owned())))?;
    }
}

/// When a session of others began is not shown: to end it is refused to whoever may not.
fn question(backend: &Backend) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
          WHERE pid OPERATOR(pg_catalog.=) {} AND usename::text OPERATOR(pg_catalog.=) {}
            AND (backend_start IS NULL OR EXTRACT(epoch FROM backend_start)::text OPERATOR(pg_catalog.=) {})",
        backend.pid,
        literal(&backend.username),
        literal(&backend.start)
    )
}
