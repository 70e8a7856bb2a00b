//! Waiting for a socket the server's way: cancel, shutdown and the death of the
//! postmaster end the wait at once.

use crate::majors;
use crate::server::wait::reload;
use pgrx::{check_for_interrupts, pg_sys};
use std::time::{Duration, Instant};

/// What a socket is waited for.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    Read,
    ReadOrWrite,
}

/// Waits until the socket is ready; false when the deadline has passed. An
/// interrupt unwinds.
pub fn for_socket(socket: i32, ready: Ready, deadline: Instant) -> bool {
    for_any(&[(socket, ready)], deadline)
}

/// Waits until one of the sockets is ready; false when the deadline has passed.
pub fn for_any(sockets: &[(i32, Ready)], deadline: Instant) -> bool {
    match sockets {
        [(socket, ready)] => for_one(*socket, *ready, deadline),
        _ => !matches!(for_set(sockets, deadline), Woken::TimedOut),
    }
}

/// What has ended a wait for several sockets.
pub enum Woken {
    TimedOut,
    /// The process was woken; nothing is known of the sockets.
    Latch,
    /// The socket at this position of the list is ready.
    Socket(usize),
}

/// Waits until one of the sockets is ready, and says which.
pub fn for_which(sockets: &[(i32, Ready)], deadline: Instant) -> Woken {
    for_set(sockets, deadline)
}

fn mask(ready: Ready) -> u32 {
    match ready {
        Ready::Read => pg_sys::WL_SOCKET_READABLE,
        Ready::ReadOrWrite => pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE,
    }
}

fn for_one(socket: i32, ready: Ready, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let events = mask(ready) | pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: MyLatch is this process's latch; the socket belongs to a live connection.
    let occurred = unsafe {
        pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            events as i32,
            socket,
            millis(left),
            pg_sys::PG_WAIT_EXTENSION,
        )
    } as u32;
    after_wait(occurred & pg_sys::WL_LATCH_SET != 0);
    occurred & pg_sys::WL_TIMEOUT == 0
}

fn for_set(sockets: &[(i32, Ready)], deadline: Instant) -> Woken {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut event = pg_sys::WaitEvent::default();
    // SAFETY: the set lives for this call only; on an error in between it is freed
    // with its memory context, and its descriptors with the process's resources.
    let occurred = unsafe {
        let set = majors::create_wait_event_set(i32::try_from(sockets.len() + 2).unwrap_or(i32::MAX));
        pg_sys::AddWaitEventToSet(set, pg_sys::WL_LATCH_SET, -1, pg_sys::MyLatch, std::ptr::null_mut());
        pg_sys::AddWaitEventToSet(
            set,
            pg_sys::WL_EXIT_ON_PM_DEATH,
            -1,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        );
        for (socket, ready) in sockets {
            pg_sys::AddWaitEventToSet(set, mask(*ready), *socket, std::ptr::null_mut(), std::ptr::null_mut());
        }
        let count = pg_sys::WaitEventSetWait(set, millis(left), &mut event, 1, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::FreeWaitEventSet(set);
        count
    };
    let latch_set = occurred > 0 && event.events & pg_sys::WL_LATCH_SET != 0;
    after_wait(latch_set);
    match (occurred > 0, latch_set) {
        (false, _) => Woken::TimedOut,
        (true, true) => Woken::Latch,
        // Behind the latch and the postmaster's death.
        (true, false) => usize::try_from(event.pos - 2).map_or(Woken::Latch, Woken::Socket),
    }
}

fn after_wait(latch_set: bool) {
    if latch_set {
        // SAFETY: MyLatch is this process's latch. Whoever set it is served by the
        // worker's loop, which looks at its plan again before it sleeps.
        unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
        reload();
    }
    check_for_interrupts!();
}

fn millis(left: Duration) -> std::ffi::c_long {
    // Rounded up, so that a wait does not spin through its last millisecond.
    let longest = std::ffi::c_long::from(i32::MAX);
    std::ffi::c_long::try_from(left.as_millis() + 1).unwrap_or(longest).min(longest)
}
