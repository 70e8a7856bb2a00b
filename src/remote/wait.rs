//! Waiting for a socket the server's way: cancel, shutdown and the death of the
//! postmaster end the wait at once.

use crate::majors;
use crate::server::wait;
use pgrx::pg_sys;
use std::time::Instant;

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
    !matches!(for_which(sockets, deadline), Woken::TimedOut)
}

/// What has ended a wait.
pub enum Woken {
    TimedOut,
    /// The process was woken; nothing is known of the sockets.
    Latch,
    /// The socket at this position of the list is ready.
    Socket(usize),
}

fn mask(ready: Ready) -> u32 {
    match ready {
        Ready::Read => pg_sys::WL_SOCKET_READABLE,
        Ready::ReadOrWrite => pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE,
    }
}

/// Waits until one of the sockets is ready, and says which. The latch is reset: whoever set it
/// is served by the worker's loop, which looks at its plan again before it sleeps.
pub fn for_which(sockets: &[(i32, Ready)], deadline: Instant) -> Woken {
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
        let count =
            pg_sys::WaitEventSetWait(set, wait::milliseconds(left), &mut event, 1, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::FreeWaitEventSet(set);
        count
    };
    let latch_set = occurred > 0 && event.events & pg_sys::WL_LATCH_SET != 0;
    wait::woken(latch_set);
    match (occurred > 0, latch_set) {
        (false, _) => Woken::TimedOut,
        (true, true) => Woken::Latch,
        // Behind the latch and the postmaster's death.
        (true, false) => usize::try_from(event.pos - 2).map_or(Woken::Latch, Woken::Socket),
    }
}
