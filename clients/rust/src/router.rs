//! The client's loop: ask the master once, keep the answer, ask again when it says that
//! routing has changed or a shard says that the key has moved.

mod listener;

use crate::is_moving;
use listener::Listener;
use postgres::{Client, Config, Error, NoTls};
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// How a session of the master is opened, each time that one is needed.
type Connect = dyn Fn() -> Result<Client, Error> + Send + Sync;

/// Routes of one keyspace, from the master. It has two sessions there, one for questions
/// and one that listens, in a thread of its own.
///
/// What is kept may be older than the master by the time that a notification takes. That
/// is no danger to writes: a shard refuses keys that have left it. So a key whose route is
/// kept is found even while the master cannot be reached.
pub struct Router {
    connect: Arc<Connect>,
    keyspace: String,
    here: Option<String>,
    session: Option<Client>,
    listener: Listener,
    /// What the listener said when the routes were kept.
    heard: u64,
    routes: HashMap<String, (Route, Instant)>,
}

/// A session for questions: none waits without an end for a master that is busy.
fn open(connect: &Connect) -> Result<Client, Error> {
    let mut session = connect()?;
    session.batch_execute("SET statement_timeout = '30s'")?;
    Ok(session)
}

/// Not an answer of the master, but the end of its session, or none to be had.
fn is_lost(error: &Error) -> bool {
    error.is_closed() || error.code().is_none_or(|state| state.code().starts_with("57P"))
}

/// Keys that are kept; where there are more, the router begins anew.
const MOST_ROUTES: usize = 100_000;
/// After this the master is asked again: a notification may have been lost with a
/// connection that nobody has missed yet.
const LONGEST_KEPT: Duration = Duration::from_secs(30);
/// Where the connection string does not say it.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long an old route is used before a master that could not be reached is tried again.
const WITHOUT_MASTER: Duration = Duration::from_secs(1);

impl Router {
    /// Connects to the master by a connection string, without TLS: on a network that is
    /// trusted, or through a tunnel. `here` is the shard that this process is on, if it is
    /// on one.
    pub fn connect(params: &str, keyspace: &str, here: Option<&str>) -> Result<Router, Error> {
        let mut config = Config::from_str(params)?;
        // No wait without an end, on a network that swallows packets either.
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ANSWER_LIMIT).keepalives_idle(ANSWER_LIMIT);
        }
        Router::with(move || config.connect(NoTls), keyspace, here)
    }

    /// The same with sessions that the caller opens: with TLS, by the connector of one's
    /// choice, or with a password that changes.
    pub fn with(
        connect: impl Fn() -> Result<Client, Error> + Send + Sync + 'static,
        keyspace: &str,
        here: Option<&str>,
    ) -> Result<Router, Error> {
        let connect: Arc<Connect> = Arc::new(connect);
        // An error of the first sessions is the caller's.
        let session = Some(open(&*connect)?);
        Ok(Router {
            listener: Listener::start(connect.clone())?,
            connect,
            keyspace: keyspace.to_owned(),
            here: here.map(str::to_owned),
            session,
            heard: 0,
            routes: HashMap::new(),
        })
    }

    /// Where the key is written: as kept, or as the master says. SM002: it is between two
    /// shards; 42704: nobody has assigned it.
    pub fn route(&mut self, key: &str) -> Result<Route, Error> {
        let heard = self.listener.heard();
        if heard != self.heard {
            // Older than the news, but what there is while the master does not answer.
            for (_, until) in self.routes.values_mut() {
                *until = Instant::now();
            }
            self.heard = heard;
        }
        if let Some((route, until)) = self.routes.get(key)
            && Instant::now() < *until
        {
            return Ok(route.clone());
        }
        let (route, kept) = match self.ask_again(key) {
            Err(error) if is_lost(&error) => match self.routes.remove(key) {
                Some((route, _)) => (route, WITHOUT_MASTER),
                None => return Err(error),
            },
            outcome => (outcome?, LONGEST_KEPT),
        };
        if self.routes.len() >= MOST_ROUTES {
            self.routes.clear();
        }
        self.routes.insert(key.to_owned(), (route.clone(), Instant::now() + kept));
        Ok(route)
    }

    /// Asks the master, a second time on a new session if the first one was lost.
    fn ask_again(&mut self, key: &str) -> Result<Route, Error> {
        match self.ask(key) {
            Err(error) if is_lost(&error) => {
                self.session = None;
                self.ask(key)
            }
            outcome => outcome,
        }
    }

    fn ask(&mut self, key: &str) -> Result<Route, Error> {
        let session = match &mut self.session {
            Some(session) => session,
            empty => empty.insert(open(&*self.connect)?),
        };
        let query =
            "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route($1, 'write', $2)";
        let row = session.query_one(query, &[&key, &self.keyspace])?;
        Ok(Route { shard_key: row.get(0), conninfo: row.get(1), namespace: row.get(2), version: row.get(3) })
    }

    /// Whether the key is on the shard that this process is on.
    pub fn is_local(&mut self, key: &str) -> Result<bool, Error> {
        let route = self.route(key)?;
        Ok(self.here.as_deref() == Some(route.shard_key.as_str()))
    }

    /// The next question about the key goes to the master.
    pub fn forget(&mut self, key: &str) {
        self.routes.remove(key);
    }

    /// Does one transaction where the key is. If that shard says that the key has moved
    /// (SM001), is on its way (SM002), or has moved since the snapshot (40001, as other
    /// conflicts do), all of it is done again, at the shard that the master names then,
    /// until the time is over. Other errors are the caller's.
    pub fn call<T>(
        &mut self,
        key: &str,
        limit: Duration,
        mut transaction: impl FnMut(&Route) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(5);
        loop {
            let outcome = self.route(key).and_then(|route| transaction(&route));
            let Err(error) = outcome else { return outcome };
            let moves = error.code().is_some_and(|state| is_moving(state.code()));
            if !moves || Instant::now() >= deadline {
                return Err(error);
            }
            self.forget(key);
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}
