//! A thread that listens to the master: what it hears makes kept routes old.

use super::Connect;
use crate::routes::is_change;
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks at whether anybody still wants to know.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Shared {
    heard: AtomicU64,
    stop: AtomicBool,
}

/// Once it is dropped, its thread ends within a second or, if it is just connecting, after that.
pub struct Listener(Arc<Shared>);

impl Listener {
    /// Listens when this returns.
    pub fn start(connect: Arc<Connect>) -> Result<Listener, Error> {
        let shared = Arc::new(Shared::default());
        let (own, session) = (shared.clone(), open(&*connect)?);
        std::thread::spawn(move || own.run(session, &*connect));
        Ok(Listener(shared))
    }

    /// A number that is another one whenever routes or shards may have changed: after a
    /// notification, and after a time in which none could have been heard.
    pub fn heard(&self) -> u64 {
        self.0.heard.load(Ordering::Acquire)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn open(connect: &Connect) -> Result<Client, Error> {
    let mut session = connect()?;
    session.batch_execute("LISTEN shardmaster")?;
    Ok(session)
}

impl Shared {
    fn run(&self, first: Client, connect: &Connect) {
        // However a session ends, there is a next one.
        let _ = self.listen(first);
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok(session) = open(connect) {
                self.heard.fetch_add(1, Ordering::Release);
                let _ = self.listen(session);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Until the session is lost, or nobody wants to know any more.
    fn listen(&self, mut session: Client) -> Result<(), Error> {
        while !self.stop.load(Ordering::Relaxed) && !session.is_closed() {
            let mut notifications = session.notifications();
            let mut notifications = notifications.timeout_iter(LOOK);
            while let Some(notification) = notifications.next()? {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if is_change(notification.payload()) {
                    self.heard.fetch_add(1, Ordering::Release);
                }
            }
        }
        Ok(())
    }
}
