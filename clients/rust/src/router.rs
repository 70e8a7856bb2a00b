//! The client's loop: ask the master once, keep the answer, ask again when it says that
//! routing has changed or a shard says that the key has moved.

mod listener;

pub use crate::routes::Route;
use crate::routes::{ANSWER_LIMIT, CONNECT_LIMIT, Kept, QUERY, SETTINGS, Tries, is_lost};
use listener::Listener;
use postgres::{Client, Config, Error, NoTls};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

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
    kept: Kept,
}

/// A session for questions: none waits without an end for a master that is busy.
fn open(connect: &Connect) -> Result<Client, Error> {
    let mut session = connect()?;
    session.batch_execute(SETTINGS)?;
    Ok(session)
}

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
            kept: Kept::default(),
        })
    }

    /// Where the key is written: as kept, or as the master says. SM002: it is between two
    /// shards; 42704: nobody has assigned it.
    pub fn route(&mut self, key: &str) -> Result<Route, Error> {
        let heard = self.listener.heard();
        if let Some(route) = self.kept.fresh(key, heard) {
            return Ok(route);
        }
        match self.ask_again(key) {
            Err(error) if is_lost(&error) => {
                self.kept.without_master(key, self.listener.heard()).ok_or(error)
            }
            outcome => {
                let route = outcome?;
                // What is said while it is asked may be newer than the answer.
                self.kept.keep(key, &route, heard);
                Ok(route)
            }
        }
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
        Ok(Route::of(&session.query_one(QUERY, &[&key, &self.keyspace])?))
    }

    /// Whether the key is on the shard that this process is on.
    pub fn is_local(&mut self, key: &str) -> Result<bool, Error> {
        let route = self.route(key)?;
        Ok(self.here.as_deref() == Some(route.shard_key.as_str()))
    }

    /// The next question about the key goes to the master.
    pub fn forget(&mut self, key: &str) {
        self.kept.forget(key);
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
        let mut tries = Tries::new(limit);
        loop {
            let outcome = self.route(key).and_then(|route| transaction(&route));
            let Err(error) = outcome else { return outcome };
            let Some(pause) = tries.next_after(&error) else { return Err(error) };
            self.forget(key);
            std::thread::sleep(pause);
        }
    }
}
