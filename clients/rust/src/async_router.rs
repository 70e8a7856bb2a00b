//! The client's loop for tokio, with the driver `tokio-postgres`: one router for all tasks of a program.

pub use crate::routes::Route;
use crate::routes::{ANSWER_LIMIT, CONNECT_LIMIT, Kept, QUERY, SETTINGS, Tries, is_change, is_lost};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, Socket};

/// A number that is another one whenever routes or shards may have changed.
type Heard = Arc<AtomicU64>;
type Opening = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;

/// Routes of one keyspace, from the master. A clone is the same router. It has one session there, for
/// questions and for what the master says by itself.
///
/// What is kept may be older than the master by the time that a notification takes. That
/// is no danger to writes: a shard refuses keys that have left it. So a key whose route is
/// kept is found even while the master cannot be reached.
#[derive(Clone)]
pub struct AsyncRouter(Arc<Inner>);

struct Inner {
    open: Box<dyn Fn(Heard) -> Opening + Send + Sync>,
    keyspace: String,
    heard: Heard,
    session: tokio::sync::Mutex<Option<Arc<Client>>>,
    kept: Mutex<Kept>,
}

/// Reads what a session is told, until it ends.
async fn listen<T: TlsStream + Unpin>(mut connection: Connection<Socket, T>, heard: Heard) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(said) = message
            && is_change(said.payload())
        {
            heard.fetch_add(1, Ordering::Release);
        }
    }
    // What is said from now on nobody hears.
    heard.fetch_add(1, Ordering::Release);
}

async fn open<T>(config: Config, tls: T, heard: Heard) -> Result<Client, Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(listen(connection, heard.clone()));
    client.batch_execute(SETTINGS).await?;
    client.batch_execute("LISTEN shardmaster").await?;
    // What was said before, nobody has heard.
    heard.fetch_add(1, Ordering::Release);
    Ok(client)
}

impl AsyncRouter {
    /// Connects to the master by a connection string, without TLS: on a network that is
    /// trusted, or through a tunnel.
    pub async fn connect(params: &str, keyspace: &str) -> Result<AsyncRouter, Error> {
        AsyncRouter::with(Config::from_str(params)?, NoTls, keyspace).await
    }

    /// The same with TLS, by the connector of one's choice.
    pub async fn with<T>(mut config: Config, tls: T, keyspace: &str) -> Result<AsyncRouter, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        // No wait without an end, on a network that swallows packets either.
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ANSWER_LIMIT).keepalives_idle(ANSWER_LIMIT);
        }
        let router = AsyncRouter(Arc::new(Inner {
            open: Box::new(move |heard| Box::pin(open(config.clone(), tls.clone(), heard))),
            keyspace: keyspace.to_owned(),
            heard: Heard::default(),
            session: tokio::sync::Mutex::new(None),
            kept: Mutex::default(),
        }));
        // An error of the first session is the caller's.
        router.session().await?;
        Ok(router)
    }

    /// Where the key is written: as kept, or as the master says. SM002: it is between two
    /// shards; 42704: nobody has assigned it.
    pub async fn route(&self, key: &str) -> Result<Route, Error> {
        if let Some(route) = self.kept().fresh(key, self.heard()) {
            return Ok(route);
        }
        let mut outcome = self.ask(key).await;
        // On a new session, if the first one was lost.
        if outcome.as_ref().is_err_and(is_lost) {
            outcome = self.ask(key).await;
        }
        match outcome {
            Err(error) if is_lost(&error) => self.kept().without_master(key, self.heard()).ok_or(error),
            outcome => outcome,
        }
    }

    /// The next question about the key goes to the master.
    pub fn forget(&self, key: &str) {
        self.kept().forget(key);
    }

    /// Does one transaction where the key is. If that shard says that the key has moved
    /// (SM001), is on its way (SM002), or has moved since the snapshot (40001, as other
    /// conflicts do), all of it is done again, at the shard that the master names then,
    /// until the time is over. Other errors are the caller's.
    pub async fn call<T, F>(
        &self,
        key: &str,
        limit: Duration,
        mut transaction: impl FnMut(Route) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = Tries::new(limit);
        loop {
            let outcome = match self.route(key).await {
                Ok(route) => transaction(route).await,
                Err(error) => Err(error),
            };
            let Err(error) = outcome else { return outcome };
            let Some(pause) = tries.next_after(&error) else { return Err(error) };
            self.forget(key);
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask(&self, key: &str) -> Result<Route, Error> {
        let session = self.session().await?;
        // What is said while it is asked may be newer than the answer.
        let heard = self.heard();
        match session.query_one(QUERY, &[&key, &self.0.keyspace]).await {
            Ok(row) => {
                let route = Route::of(&row);
                self.kept().keep(key, &route, heard);
                Ok(route)
            }
            Err(error) => {
                if is_lost(&error) {
                    self.lose(&session).await;
                }
                Err(error)
            }
        }
    }

    /// Nobody asks this session any more, also where it does not know yet that it has ended.
    async fn lose(&self, lost: &Arc<Client>) {
        let mut session = self.0.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, lost)) {
            *session = None;
        }
    }

    fn heard(&self) -> u64 {
        self.0.heard.load(Ordering::Acquire)
    }

    /// One session for all who ask at the same time; another one where it has ended.
    async fn session(&self) -> Result<Arc<Client>, Error> {
        let mut session = self.0.session.lock().await;
        if let Some(open) = session.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        *session = None;
        let opened = Arc::new((self.0.open)(self.0.heard.clone()).await?);
        Ok(session.insert(opened).clone())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nobody panics with it.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
