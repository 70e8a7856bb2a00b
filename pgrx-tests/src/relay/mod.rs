//! A link to a server that can be cut, stalled, slow, narrow and lossy. It listens on a socket of its own and
//! forwards everything while no fault is set.

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

/// The interval between two checks for a new connection.
const LOOK: Duration = Duration::from_millis(2);

/// The faults of the link.
#[derive(Clone, Debug, Default)]
struct Faults {
    /// Nothing comes through, and neither side notices.
    silent: bool,
    /// Connections end, and new ones are refused.
    cut: bool,
    /// Everything is forwarded with this delay.
    delay: Duration,
    /// Bytes a second in each direction, of all connections together.
    rate: Option<u64>,
    /// The percentage of packets that are lost and sent again.
    loss: usize,
    /// Bytes that are replaced by others in the server's answers to some connections.
    lie: Option<Substitution>,
}

/// Both are of the same length, so that no message becomes another one.
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
    /// The application name of its startup message.
    application: String,
    silenced: bool,
    /// The server sends notices, and nothing else.
    babbles: bool,
    /// The server was sent a request, and has not answered since.
    is_asked: bool,
}

#[derive(Default)]
struct Link {
    faults: Faults,
    pipes: Vec<Arc<Mutex<Pipe>>>,
    /// The recorded requests, or `None` if nothing is recorded.
    heard: Option<Vec<Request>>,
    /// Until when each direction is occupied by what was sent. Only a narrow line uses this.
    busy: [Option<Instant>; 2],
}

/// A relay in front of a server. It ends when dropped.
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

    /// Returns a connection string that leads through the link.
    pub fn conninfo(&self, database: &str, user: &str) -> String {
        format!("host={} port=5432 dbname={database} user={user}", self.dir.display())
    }

    /// Lets nothing through any more, in either direction, on existing and new connections.
    pub fn silence(&self) {
        lock(&self.link).faults.silent = true;
    }

    /// Silences the connections of one application. Others and new ones are not affected.
    pub fn silence_only(&self, application: &str) {
        for pipe in &lock(&self.link).pipes {
            let mut pipe = lock(pipe);
            pipe.silenced |= pipe.application.contains(application);
        }
    }

    /// Silences the connections of one application, except for the oldest.
    pub fn silence_later(&self, application: &str) {
        let is_of = |pipe: &&Arc<Mutex<Pipe>>| lock(pipe).application.contains(application);
        for pipe in lock(&self.link).pipes.iter().filter(is_of).skip(1) {
            lock(pipe).silenced = true;
        }
    }

    /// Sends notices, one after the other, on the open connections, and holds back the server's answers. None
    /// of the connections has an unanswered request.
    pub fn babble(&self) {
        for pipe in &lock(&self.link).pipes {
            lock(pipe).babbles = true;
        }
    }

    /// Silences the oldest of a worker's connections. Others and new ones are not affected.
    pub fn silence_one(&self) {
        let is_ours = |pipe: &&Arc<Mutex<Pipe>>| lock(pipe).application.starts_with("shardmaster split");
        if let Some(pipe) = lock(&self.link).pipes.iter().find(is_ours) {
            lock(pipe).silenced = true;
        }
    }

    /// Ends every connection, and accepts no new one.
    pub fn cut(&self) {
        let mut link = lock(&self.link);
        link.faults.cut = true;
        for pipe in link.pipes.drain(..) {
            let pipe = lock(&pipe);
            let _ = (pipe.client.shutdown(Shutdown::Both), pipe.server.shutdown(Shutdown::Both));
        }
    }

    /// Delays everything by this time in each direction. The throughput stays the same.
    pub fn delay(&self, delay: Duration) {
        lock(&self.link).faults.delay = delay;
    }

    /// Limits the bytes a second in each direction.
    pub fn throttle(&self, rate: u64) {
        lock(&self.link).faults.rate = Some(rate);
    }

    /// Loses this percentage of the packets, some of them repeatedly. A lost packet and everything after it
    /// arrive late.
    pub fn lose(&self, percent: usize) {
        lock(&self.link).faults.loss = percent;
    }

    /// From now on changes the server's answers to the connections of one application.
    pub fn lie(&self, application: &str, truth: &[u8], told: &[u8]) {
        assert_eq!(truth.len(), told.len());
        let (application, truth, told) = (application.to_owned(), truth.to_vec(), told.to_vec());
        lock(&self.link).faults.lie = Some(Substitution { application, truth, told });
    }

    /// Ends all faults. Silenced connections continue where they were.
    pub fn mend(&self) {
        let mut link = lock(&self.link);
        (link.faults, link.busy) = (Faults::default(), [None; 2]);
        for pipe in &link.pipes {
            let mut pipe = lock(pipe);
            (pipe.silenced, pipe.babbles) = (false, false);
        }
    }

    /// Waits until a connection of an application is open.
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
