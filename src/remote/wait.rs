//! Waiting for a socket with the server's means: cancel, shutdown and the death of the postmaster end the wait at
//! once.

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

/// Waits until the socket is ready. Returns false when the deadline has passed. An interrupt unwinds.
pub fn for_socket(socket: i32, ready: Ready, deadline: Instant) -> bool {
    for_any(&[(socket, ready)], deadline)
}

/// Waits until one of the sockets is ready. Returns false when the deadline has passed.
pub fn for_any(sockets: &[(i32, Ready)], deadline: Instant) -> bool {
    !matches!(for_each(sockets, deadline), Woken::TimedOut)
}

/// What has ended a wait.
pub enum Woken {
    TimedOut,
    /// The process was woken; the state of the sockets is unknown.
    Latch,
    /// The sockets at these positions of the list are ready.
    Sockets(Vec<usize>),
}

fn mask(ready: Ready) -> u32 {
    match ready {
        Ready::Read => pg_sys::WL_SOCKET_READABLE,
        Ready::ReadOrWrite => pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE,
    }
}

/// Waits until one of the sockets is ready, and returns which are by then. The latch is reset: the worker's loop,
/// which reads its plan again before it sleeps, serves the session that has set it.
pub fn for_each(sockets: &[(i32, Ready)], deadline: Instant) -> Woken {
    let left = deadline.saturating_duration_since(Instant::now());
    let most = i32::try_from(sockets.len() + 2).unwrap_or(i32::MAX);
    let mut events = vec![pg_sys::WaitEvent::default(); sockets.len() + 2];
    // SAFETY: the set lives for this call only; on an error in between it is freed with its memory context, and its
    // descriptors with the process's resources. There are as many events as there is room for.
    let occurred = unsafe {
        let set = majors::create_wait_event_set(most);
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
        let count = pg_sys::WaitEventSetWait(
            set,
            wait::milliseconds(left),
            events.as_mut_ptr(),
            most,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::FreeWaitEventSet(set);
        count
    };
    let occurred = events.get(..usize::try_from(occurred).unwrap_or(0)).unwrap_or_default();
    let latch_set = occurred.iter().any(|event| event.events & pg_sys::WL_LATCH_SET != 0);
    // Positions begin after the latch and the postmaster's death.
    let ready: Vec<usize> = occurred.iter().filter_map(|event| usize::try_from(event.pos - 2).ok()).collect();
    let is_over = occurred.is_empty();
    // An interrupt leaves from here without running destructors.
    drop(events);
    wait::woken(latch_set);
    match (is_over, ready.is_empty()) {
        (true, _) => Woken::TimedOut,
        (false, true) => Woken::Latch,
        (false, false) => Woken::Sockets(ready),
    }
}
