//! What routers share: routes, how long they are kept, and what errors say of a master and a key.

use crate::is_moving;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::{Error, Row};

/// Where a key is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub shard_key: String,
    /// None: the master's own database.
    pub conninfo: Option<String>,
    /// The schema to work in.
    pub namespace: String,
    pub version: i64,
}

impl Route {
    /// Of a row of [`QUERY`].
    pub(crate) fn of(row: &Row) -> Route {
        Route { shard_key: row.get(0), conninfo: row.get(1), namespace: row.get(2), version: row.get(3) }
    }
}

pub(crate) const QUERY: &str =
    "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route($1, 'write', $2)";
/// For a session for questions: none waits without an end for a master that is busy.
pub(crate) const SETTINGS: &str = "SET statement_timeout = '30s'";
/// Where the connection string does not say it.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Keys that are kept; where there are more, the router begins anew.
const MOST_ROUTES: usize = 100_000;
/// After this the master is asked again: a notification may have been lost with a
/// connection that nobody has missed yet.
const LONGEST_KEPT: Duration = Duration::from_secs(30);
/// How long an old route is used before a master that could not be reached is tried again.
const WITHOUT_MASTER: Duration = Duration::from_secs(1);
/// Before a transaction is tried again, and what that grows to.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Not an answer of the master, but the end of its session, or none to be had.
pub(crate) fn is_lost(error: &Error) -> bool {
    error.is_closed() || error.code().is_none_or(|state| state.code().starts_with("57P"))
}

/// Whether a payload says that routes are old; others may say anything on the channel.
pub(crate) fn is_change(payload: &str) -> bool {
    payload.contains("\"routing\"") || payload.contains("\"topology\"")
}

/// A route, what the listener had said before it was asked for, and until when it is used.
struct Entry {
    route: Route,
    heard: u64,
    until: Instant,
}

#[derive(Default)]
pub(crate) struct Kept(HashMap<String, Entry>);

impl Kept {
    /// The key's route, unless the listener has heard something since, or it is old.
    pub fn fresh(&self, key: &str, heard: u64) -> Option<Route> {
        let entry = self.0.get(key)?;
        (entry.heard == heard && Instant::now() < entry.until).then(|| entry.route.clone())
    }

    /// What the master has said, after `heard`.
    pub fn keep(&mut self, key: &str, route: &Route, heard: u64) {
        if self.0.len() >= MOST_ROUTES {
            self.0.clear();
        }
        let entry = Entry { route: route.clone(), heard, until: Instant::now() + LONGEST_KEPT };
        self.0.insert(key.to_owned(), entry);
    }

    /// An old route, for a while, if the master cannot be reached.
    pub fn without_master(&mut self, key: &str, heard: u64) -> Option<Route> {
        let entry = self.0.get_mut(key)?;
        (entry.heard, entry.until) = (heard, Instant::now() + WITHOUT_MASTER);
        Some(entry.route.clone())
    }

    pub fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }
}

/// The tries of one transaction.
pub(crate) struct Tries {
    deadline: Instant,
    pause: Duration,
}

impl Tries {
    pub fn new(limit: Duration) -> Tries {
        Tries { deadline: Instant::now() + limit, pause: FIRST_PAUSE }
    }

    /// How long to wait before the next one: None if the error does not say that the key moves, or
    /// the time is over.
    pub fn next_after(&mut self, error: &Error) -> Option<Duration> {
        let moves = error.code().is_some_and(|state| is_moving(state.code()));
        if !moves || Instant::now() >= self.deadline {
            return None;
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        Some(pause)
    }
}
