//! One way of a connection. What is read is put on the line, where it stays until it is due, and
//! is handed on in its order: a long line is late, and takes no less for that.

use super::{Faults, Link, Pipe, Substitution, lock};
use crate::random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at what is to be done to the link: at first, and on one that has been silent for a while. Hundreds of
/// connections of an outage that look as often would take the processors.
const LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// The end of the link, and its being cut, are noticed at once.
const READ: Duration = Duration::from_millis(200);
/// Pieces that are under way at most. Whoever sends more waits, as for a window that is full.
const UNDER_WAY: usize = 256;
/// Bytes of a piece; of a narrow line fewer, so that its connections take turns.
const PIECE: usize = 64 << 10;
const NARROW_PIECE: usize = 8 << 10;
/// After which TCP sends anew what was not acknowledged; twice as long each time that is lost, too.
const RESEND: Duration = Duration::from_millis(200);
/// Where it stops doubling here.
const LONGEST_RESEND: Duration = Duration::from_secs(3);

/// Whole, so that it may stand before and after any other message.
pub const NOTICE: &[u8] = b"N\0\0\0\x18SNOTICE\0C00000\0Mhm\0\0";

struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// What both ends of the way know.
#[derive(Clone)]
pub(super) struct Direction {
    pub link: Arc<Mutex<Link>>,
    pub ended: Arc<AtomicBool>,
    pub pipe: Arc<Mutex<Pipe>>,
    /// From the client to the server.
    pub is_client: bool,
}

impl Direction {
    /// Hands on what comes from one side until either side ends.
    pub fn open(self, from: UnixStream, to: UnixStream) {
        let Ok(both) = from.try_clone() else { return };
        let (line, arriving) = sync_channel(UNDER_WAY);
        let reads = self.clone();
        thread::spawn(move || reads.take_in(from, &line));
        thread::spawn(move || {
            self.hand_on(&arriving, &to);
            let _ = (both.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            lock(&self.link).pipes.retain(|other| !Arc::ptr_eq(other, &self.pipe));
        });
    }

    fn take_in(&self, mut from: UnixStream, line: &SyncSender<Piece>) {
        let mut buffer = vec![0; PIECE];
        let (mut random, mut due) = (Random::new(1), Instant::now());
        let _ = from.set_read_timeout(Some(READ));
        while !self.ended.load(Ordering::Relaxed) {
            if !self.is_client && lock(&self.pipe).babbles {
                // Without a pause: there is something to be read at any moment.
                if line.send(Piece { due, bytes: NOTICE.repeat(500) }).is_err() {
                    return;
                }
                continue;
            }
            let most = if lock(&self.link).faults.rate.is_some() { NARROW_PIECE } else { PIECE };
            let length = match from.read(&mut buffer[..most]) {
                Ok(0) => return,
                Ok(length) => length,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return,
            };
            if self.is_client && lock(&self.pipe).application.is_empty() {
                lock(&self.pipe).application = application_of(&buffer[..length]);
            }
            self.hear(&buffer[..length]);
            let faults = lock(&self.link).faults.clone();
            if let Some(lie) = &faults.lie {
                self.tell(lie, &mut buffer[..length]);
            }
            due = due.max(self.send(length, &faults) + faults.delay + resent(&mut random, faults.loss));
            if line.send(Piece { due, bytes: buffer[..length].to_vec() }).is_err() {
                return;
            }
        }
    }

    /// When all of a piece is on the line, which takes one after the other; no more is read before.
    fn send(&self, length: usize, faults: &Faults) -> Instant {
        let now = Instant::now();
        let Some(rate) = faults.rate else { return now };
        let sent = {
            let mut link = lock(&self.link);
            let busy = &mut link.busy[usize::from(self.is_client)];
            let sent =
                busy.map_or(now, |busy| busy.max(now)) + Duration::from_secs_f64(length as f64 / rate as f64);
            *busy = Some(sent);
            sent
        };
        thread::sleep(sent - now);
        sent
    }

    fn tell(&self, lie: &Substitution, bytes: &mut [u8]) {
        if !self.is_client && lock(&self.pipe).application.contains(&lie.application) {
            lie.tell(bytes);
        }
    }

    fn hand_on(&self, arriving: &Receiver<Piece>, mut to: &UnixStream) {
        for piece in arriving {
            thread::sleep(piece.due.saturating_duration_since(Instant::now()));
            self.wait_while_silent();
            if to.write_all(&piece.bytes).is_err() {
                return;
            }
        }
        // That the other side has closed the connection is told by a message like any other.
        self.wait_while_silent();
    }

    fn wait_while_silent(&self) {
        let mut pause = LOOK;
        while !self.ended.load(Ordering::Relaxed)
            && (lock(&self.link).faults.silent || lock(&self.pipe).silenced)
        {
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }
}

/// TCP loses no byte: one that was lost on its way is sent again, and what comes behind it waits
/// for it. So all that is ever seen of a loss is that everything is late.
fn resent(random: &mut Random, percent: usize) -> Duration {
    let (mut late, mut pause) = (Duration::ZERO, RESEND);
    while random.percent(percent) {
        late += pause;
        pause = (pause * 2).min(LONGEST_RESEND);
    }
    late
}

/// The name that the first message of a connection gives, among its parameters.
fn application_of(start: &[u8]) -> String {
    let mut words = start.get(8..).unwrap_or_default().split(|byte| *byte == 0);
    while let Some(word) = words.next() {
        if word == b"application_name" {
            return String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        }
    }
    // A question for TLS comes before.
    String::new()
}
