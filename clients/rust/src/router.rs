//! The client's loop: ask the master once, keep the answer, ask again when it says that
//! routing has changed or a shard says that the key has moved.

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Config, Error, NoTls};
use std::collections::HashMap;
use std::str::FromStr;
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

/// Routes of one keyspace, from the master, by a session that listens for changes; without
/// TLS, so on a network that is trusted or through a tunnel.
///
/// What is kept may be older than the master by the time that a notification takes. That
/// is no danger to writes: a shard refuses keys that have left it.
pub struct Router {
    config: Config,
    keyspace: String,
    here: Option<String>,
    session: Option<Client>,
    routes: HashMap<String, (Route, Instant)>,
}

/// Whether routing or the shards have changed, by the notifications that have come; None:
/// the session is lost.
fn has_news(session: &mut Client) -> Option<bool> {
    let mut news = false;
    let mut notifications = session.notifications();
    let mut pending = notifications.iter();
    while let Some(notification) = pending.next().ok()? {
        let event = notification.payload();
        news |= event.contains("\"routing\"") || event.contains("\"topology\"");
    }
    Some(news)
}

/// Not an answer of the master, but the end of its session.
fn is_lost(error: &Error) -> bool {
    error.is_closed() || error.code().is_none_or(|state| state.code().starts_with("57P"))
}

/// Keys that are kept; where there are more, the router begins anew.
const MOST_ROUTES: usize = 100_000;
/// After this the master is asked again: a notification may have been lost with a
/// connection that nobody has missed yet.
const LONGEST_KEPT: Duration = Duration::from_secs(30);

impl Router {
    /// Connects to the master by a connection string. `here` is the shard that this
    /// process is on, if it is on one.
    pub fn connect(params: &str, keyspace: &str, here: Option<&str>) -> Result<Router, Error> {
        let mut router = Router {
            config: Config::from_str(params)?,
            keyspace: keyspace.to_owned(),
            here: here.map(str::to_owned),
            session: None,
            routes: HashMap::new(),
        };
        router.session()?;
        Ok(router)
    }

    /// The session, opened again if it was lost; then nothing that was kept counts.
    fn session(&mut self) -> Result<&mut Client, Error> {
        if self.session.as_ref().is_none_or(Client::is_closed) {
            self.routes.clear();
            let mut client = self.config.connect(NoTls)?;
            client.batch_execute("LISTEN shardmaster")?;
            self.session = Some(client);
        }
        match &mut self.session {
            Some(client) => Ok(client),
            None => unreachable!("the session was just opened"),
        }
    }

    /// Reads the notifications that have come, and drops the routes if one is of routing
    /// or of the shards.
    fn listen(&mut self) -> Result<(), Error> {
        match has_news(self.session()?) {
            Some(false) => {}
            Some(true) => self.routes.clear(),
            None => {
                self.session = None;
                self.session()?;
            }
        }
        Ok(())
    }

    /// Where the key is written: as kept, or as the master says. SM002: it is between two
    /// shards; 42704: nobody has assigned it.
    pub fn route(&mut self, key: &str) -> Result<Route, Error> {
        self.listen()?;
        if let Some((route, asked)) = self.routes.get(key)
            && asked.elapsed() < LONGEST_KEPT
        {
            return Ok(route.clone());
        }
        let route = match self.ask(key) {
            // The master was restarted, or ended the session: once more, on a new one.
            Err(error) if is_lost(&error) => {
                self.session = None;
                self.ask(key)?
            }
            outcome => outcome?,
        };
        if self.routes.len() >= MOST_ROUTES {
            self.routes.clear();
        }
        self.routes.insert(key.to_owned(), (route.clone(), Instant::now()));
        Ok(route)
    }

    fn ask(&mut self, key: &str) -> Result<Route, Error> {
        let keyspace = self.keyspace.clone();
        let query =
            "SELECT shard_key, conninfo, namespace, routing_version FROM shard_route($1, 'write', $2)";
        let row = self.session()?.query_one(query, &[&key, &keyspace])?;
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
    /// (SM001) or is on its way (SM002), all of it is done again, at the shard that the
    /// master names then, until the time is over. Other errors are the caller's.
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
            let is_moving = error.code().is_some_and(|state| matches!(state.code(), "SM001" | "SM002"));
            if !is_moving || Instant::now() >= deadline {
                return Err(error);
            }
            self.forget(key);
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}
