//! A link to a server that can be cut, stalled, delayed, narrow and lossy: it listens on a socket
//! of its own and hands on what comes, as long as nothing is done to it.

mod direction;
mod requests;

pub use direction::NOTICE;
pub use requests::Request;

use crate::server::Server;
use crate::{Result, wait};
use direction::Direction;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks for a new connection.
const LOOK: Duration = Duration::from_millis(2);

/// What is done to the link.
#[derive(Clone, Debug, Default)]
struct Faults {
    /// Nothing comes through, and nobody is told.
    silent: bool,
    /// Connections end, new ones are refused.
    cut: bool,
    /// What comes is handed on so much later.
    delay: Duration,
    /// Bytes a second, each way, of all connections together.
    rate: Option<u64>,
    /// Percent of what comes that is lost, and sent again.
    loss: usize,
    /// What the server answers to connections of a purpose has these bytes instead of those.
    lie: Option<Substitution>,
}

/// Of one length, so that no message becomes another one.
#[derive(Clone, Debug)]
struct Substitution {
    application: String,
    truth: Vec<u8>,
    told: Vec<u8>,
}

impl Substitution {
    fn tell(&self, bytes: &mut [u8]) {
        let length = self.truth.len();
        for at in 0..bytes.len().saturating_sub(length - 1) {
            if bytes[at..at + length] == self.truth {
                bytes[at..at + length].copy_from_slice(&self.told);
            }
        }
    }
}

/// One connection through the link.
struct Pipe {
    client: UnixStream,
    server: UnixStream,
    /// As its start names it.
    application: String,
    silenced: bool,
    /// Notices come of the server, and nothing else.
    babbles: bool,
    /// The server has been asked something, and has not said anything since.
    is_asked: bool,
}

#[derive(Default)]
struct Link {
    faults: Faults,
    pipes: Vec<Arc<Mutex<Pipe>>>,
    /// What the server has been asked; None: nobody listens.
    heard: Option<Vec<Request>>,
    /// Until when either way is taken by what is sent already; only of a narrow line.
    busy: [Option<Instant>; 2],
}

/// A relay in front of a server; ends when dropped.
pub struct Relay {
    dir: PathBuf,
    link: Arc<Mutex<Link>>,
    ended: Arc<AtomicBool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    pub fn before(server: &Server) -> Result<Relay> {
        let dir = server.socket_dir().join("relay");
        std::fs::create_dir(&dir)?;
        let listener = UnixListener::bind(dir.join(".s.PGSQL.5432"))?;
        listener.set_nonblocking(true)?;
        let (link, ended) = (Arc::new(Mutex::new(Link::default())), Arc::new(AtomicBool::new(false)));
        let upstream = server.socket_dir().join(".s.PGSQL.5432");
        let (its_link, its_end) = (link.clone(), ended.clone());
        thread::spawn(move || {
            while !its_end.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => accept(&its_link, &its_end, client, &upstream),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Ok(Relay { dir, link, ended })
    }

    /// A connection string that leads through the link.
    pub fn conninfo(&self, database: &str, user: &str) -> String {
        format!("host={} port=5432 dbname={database} user={user}", self.dir.display())
    }

    /// Nothing comes through any more, either way, also for new connections.
    pub fn silence(&self) {
        lock(&self.link).faults.silent = true;
    }

    /// The connections of one purpose fall silent; others, and new ones, do not.
    pub fn silence_only(&self, application: &str) {
        for pipe in &lock(&self.link).pipes {
            let mut pipe = lock(pipe);
            pipe.silenced |= pipe.application.contains(application);
        }
    }

    /// The same but for the oldest of them.
    pub fn silence_later(&self, application: &str) {
        let is_of = |pipe: &&Arc<Mutex<Pipe>>| lock(pipe).application.contains(application);
        for pipe in lock(&self.link).pipes.iter().filter(is_of).skip(1) {
            lock(pipe).silenced = true;
        }
    }

    /// On the connections that are open, none of which is asked anything at this moment, notices
    /// come, one after the other, and what the server answers does not.
    pub fn babble(&self) {
        for pipe in &lock(&self.link).pipes {
            lock(pipe).babbles = true;
        }
    }

    /// The oldest of a worker's connections falls silent; others, and new ones, do not.
    pub fn silence_one(&self) {
        let is_ours = |pipe: &&Arc<Mutex<Pipe>>| lock(pipe).application.starts_with("shardmaster split");
        if let Some(pipe) = lock(&self.link).pipes.iter().find(is_ours) {
            lock(pipe).silenced = true;
        }
    }

    /// Every connection ends, and no new one is taken.
    pub fn cut(&self) {
        let mut link = lock(&self.link);
        link.faults.cut = true;
        for pipe in link.pipes.drain(..) {
            let pipe = lock(&pipe);
            let _ = (pipe.client.shutdown(Shutdown::Both), pipe.server.shutdown(Shutdown::Both));
        }
    }

    /// Everything takes so much longer, each way; as much goes over as before.
    pub fn delay(&self, delay: Duration) {
        lock(&self.link).faults.delay = delay;
    }

    /// No more bytes a second than that go over, each way.
    pub fn throttle(&self, rate: u64) {
        lock(&self.link).faults.rate = Some(rate);
    }

    /// So many percent of what comes are lost once or more often, and come late with all that is
    /// behind them.
    pub fn lose(&self, percent: usize) {
        lock(&self.link).faults.loss = percent;
    }

    /// From now on the server's answers to connections of one purpose are changed on the way.
    pub fn lie(&self, application: &str, truth: &[u8], told: &[u8]) {
        assert_eq!(truth.len(), told.len());
        let (application, truth, told) = (application.to_owned(), truth.to_vec(), told.to_vec());
        lock(&self.link).faults.lie = Some(Substitution { application, truth, told });
    }

    /// The link is well again. What fell silent goes on where it was.
    pub fn mend(&self) {
        let mut link = lock(&self.link);
        (link.faults, link.busy) = (Faults::default(), [None; 2]);
        for pipe in &link.pipes {
            let mut pipe = lock(pipe);
            (pipe.silenced, pipe.babbles) = (false, false);
        }
    }

    /// Waits until a connection of a purpose is open.
    pub fn wait_for(&self, application: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("a connection of {application}"), limit, || {
            let open = lock(&self.link).pipes.iter().any(|pipe| lock(pipe).application.contains(application));
            Ok(open.then_some(()))
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.cut();
    }
}

fn accept(link: &Arc<Mutex<Link>>, ended: &Arc<AtomicBool>, client: UnixStream, upstream: &std::path::Path) {
    if lock(link).faults.cut {
        return;
    }
    let Ok(server) = UnixStream::connect(upstream) else { return };
    let streams = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
    let (Some(up), Some(down)) = (streams(), streams()) else { return };
    let pipe = Arc::new(Mutex::new(Pipe {
        client,
        server,
        application: String::new(),
        silenced: false,
        babbles: false,
        is_asked: false,
    }));
    lock(link).pipes.push(pipe.clone());
    for (from, to, is_client) in [(up.0, up.1, true), (down.1, down.0, false)] {
        Direction { link: link.clone(), ended: ended.clone(), pipe: pipe.clone(), is_client }.open(from, to);
    }
}
