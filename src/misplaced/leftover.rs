//! Sessions on shards that may be left of a run: they are ended, so that their last actions have come to their end.

use super::error;
use crate::catalog::caller::Caller;
use crate::catalog::{misplaced_run, shard};
use crate::error::Failure;
use crate::query::login::{self, LoginWay};
use crate::query::opening::Manners;
use crate::query::sessions::{QuerySessions, end_of};
use crate::remote::fan_out::Question;
use std::time::{Duration, Instant};

/// Returns the caller's login on a shard.
pub fn way(shard: &str, timeout: Duration) -> Result<LoginWay, Failure> {
    Caller::as_owner(|caller| login::entrance(&login::role_of(caller)?, &shard::by_key(shard)?, timeout))
}

/// Returns once none of them exists.
pub fn end(id: i64, timeout: Duration) -> Result<(), Failure> {
    let left = Caller::as_owner(|_| misplaced_run::sessions(id));
    if left.is_empty() {
        return Ok(());
    }
    let shards: Vec<String> = left.iter().map(|(shard, _)| shard.clone()).collect();
    let ways = shards.iter().map(|shard| way(shard, timeout)).collect::<Result<Vec<LoginWay>, Failure>>()?;
    let mut sessions = QuerySessions::open(ways, &[], &Manners::of_caller(), timeout, false)?;
    let questions: Vec<String> = left.iter().map(|(_, backend)| end_of(backend)).collect();
    let until = Instant::now() + timeout;
    loop {
        let answers = sessions.ask(|number| questions.get(number).cloned().map(Question::Own))?;
        let is_there =
            answers.iter().position(|rows| rows.as_ref().is_some_and(|rows| !rows.rows.is_empty()));
        let Some(number) = is_there else { return Ok(()) };
        if Instant::now() > until {
            return Err(error::session_left(shards.get(number).map_or("", String::as_str)));
        }
        sessions.ask(|_| Some(Question::Own("SELECT pg_catalog.pg_sleep(0.02)".to_owned())))?;
    }
}
