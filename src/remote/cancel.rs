//! Asking a server to end a statement. libpq connects for this, and waits for the server to close that connection,
//! without a time limit and without checking for interrupts: a server that hangs, or was compromised, could block this
//! process for any time. So another thread does it.

use pq_sys as pq;
use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::Duration;

/// How long the thread is waited for, so that the request is sent before a process ends.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A cancel request that is given to the thread, which alone uses and frees it.
struct CancelRequest(NonNull<pq::PGcancel>);

// SAFETY: it is a copy of what a connection knows of its server, and contains nothing of the connection; PQcancel may
// be called from a signal handler.
unsafe impl Send for CancelRequest {}

impl CancelRequest {
    fn ask(self) {
        let mut problem: [c_char; 256] = [0; 256];
        // SAFETY: the request is live; the text has the given length.
        unsafe { pq::PQcancel(self.0.as_ptr(), problem.as_mut_ptr(), 256) };
    }
}

impl Drop for CancelRequest {
    fn drop(&mut self) {
        // SAFETY: this is its last use.
        unsafe { pq::PQfreeCancel(self.0.as_ptr()) };
    }
}

/// The limit for one session among many, in a process that continues: the next one must not wait for it.
const AMONG_MANY: Duration = Duration::from_millis(20);

/// Returns when the server has been asked, or after a moment: the thread continues to wait, and ends with this
/// process.
pub(super) fn send(request: NonNull<pq::PGcancel>, is_one_of_many: bool) {
    let request = CancelRequest(request);
    let (done, is_done) = mpsc::channel();
    let before = Signals::block();
    let started = std::thread::Builder::new().spawn(move || {
        request.ask();
        let _ = done.send(());
    });
    drop(before);
    if started.is_ok() {
        let _ = is_done.recv_timeout(if is_one_of_many { AMONG_MANY } else { LONGEST_WAIT });
    }
}

/// This is as large as any system's sigset_t.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct SignalSet([u8; 128]);

unsafe extern "C" {
    fn sigfillset(set: *mut SignalSet) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, before: *mut SignalSet) -> c_int;
}

#[cfg(target_os = "linux")]
const SET_MASK: c_int = 2;
#[cfg(not(target_os = "linux"))]
const SET_MASK: c_int = 3;

/// The signals that this thread takes, restored when dropped. A thread that is started meanwhile takes none: the
/// server's handlers are for its own threads.
struct Signals(SignalSet);

impl Signals {
    fn block() -> Signals {
        let (mut all, mut before) = (SignalSet([0; 128]), SignalSet([0; 128]));
        // SAFETY: both sets are large enough.
        unsafe {
            sigfillset(&mut all);
            pthread_sigmask(SET_MASK, &all, &mut before);
        }
        Signals(before)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: this is the earlier set.
        unsafe { pthread_sigmask(SET_MASK, &self.0, std::ptr::null_mut()) };
    }
}
