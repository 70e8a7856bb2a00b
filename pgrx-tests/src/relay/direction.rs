//! One direction of a connection. What is read is put on the line, where it stays until it is due, and is
//! forwarded in order. A long line is late, and still carries as much.

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

/// The intervals between two checks of a silent link: at first, and after it has been silent for a while.
/// Hundreds of silent connections that check as often as at first would take all processors.
const LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// How soon the end of the link, or a cut, is noticed.
const READ: Duration = Duration::from_millis(200);
/// The maximum of pieces that are under way. A sender that sends more waits, as for a full window.
const UNDER_WAY: usize = 256;
/// The bytes of a piece. Pieces of a narrow line are smaller, so that its connections take turns.
const PIECE: usize = 64 << 10;
const NARROW_PIECE: usize = 8 << 10;
/// The time after which TCP resends what was not acknowledged. It doubles each time that is lost as well.
const RESEND: Duration = Duration::from_millis(200);
/// The limit of that time here.
const LONGEST_RESEND: Duration = Duration::from_secs(3);

/// A whole message, so that it may stand before and after any other message.
pub const NOTICE: &[u8] = b"N\0\0\0\x18SNOTICE\0C00000\0Mhm\0\0";

struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// The state that both ends of the direction share.
#[derive(Clone)]
pub(super) struct Direction {
    pub link: Arc<Mutex<Link>>,
    pub ended: Arc<AtomicBool>,
    pub pipe: Arc<Mutex<Pipe>>,
    /// Whether it leads from the client to the server.
    pub is_client: bool,
}

impl Direction {
    /// Forwards what one side sends, until either side ends.
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
                // This does not pause, so that there is something to read at any moment.
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

    /// Returns when the whole piece is on the line, which carries one piece after the other. No more is read before.
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
        // A closed connection is reported to the other side like a message, so it waits as well.
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

/// Returns the delay by losses. TCP loses no byte: a lost one is resent, and everything after it waits. So
/// the only visible effect of a loss is a delay.
fn resent(random: &mut Random, percent: usize) -> Duration {
    let (mut late, mut pause) = (Duration::ZERO, RESEND);
    while random.percent(percent) {
        late += pause;
        pause = (pause * 2).min(LONGEST_RESEND);
    }
    late
}

/// Returns the application name in the first message of a connection.
fn application_of(start: &[u8]) -> String {
    let mut words = start.get(8..).unwrap_or_default().split(|byte| *byte == 0);
    while let Some(word) = words.next() {
        if word == b"application_name" {
            return String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        }
    }
    // A request for TLS comes before that message.
    String::new()
}
