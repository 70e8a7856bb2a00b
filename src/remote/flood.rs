//! A bound on what a shard's answer may take of this server's memory. Rows of tables come
//! by COPY, in pieces; all that is asked for otherwise is small.

use std::ffi::{c_int, c_ulong};

/// Bytes of an answer.
pub const MOST: u64 = 256 << 20;

#[cfg(target_os = "linux")]
const FIONREAD: c_ulong = 0x541b;
#[cfg(not(target_os = "linux"))]
const FIONREAD: c_ulong = 0x4004_667f;

unsafe extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// What has arrived of one answer.
#[derive(Default)]
pub struct Received(u64);

impl Received {
    /// Counts what the socket holds, before it is read; true: it is too much. Not exact: what
    /// libpq leaves for later is counted again, what arrives while it reads is not counted.
    pub fn is_too_much(&mut self, socket: c_int) -> bool {
        let mut waiting: c_int = 0;
        // SAFETY: a system call that writes one number.
        if unsafe { ioctl(socket, FIONREAD, &raw mut waiting) } == 0 {
            self.0 = self.0.saturating_add(u64::try_from(waiting).unwrap_or(0));
        }
        self.0 > MOST
    }

    pub fn reset(&mut self) {
        self.0 = 0;
    }
}
