//! The output of a command: limited in time and size, and no process of it remains.

use crate::remote::wait::{self, Ready};
use crate::server;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The time between two checks whether the command has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A running command; it is killed with all processes that it has started when this is dropped, on errors and
/// interrupts too.
struct RunningCommand(Child);

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            // SAFETY: this sends a signal to the group of a process that this has started and not waited for yet, or
            // that is gone.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// The time until which a caller waits for all commands of one credential; `None` if each command may take its own
/// time.
#[derive(Clone, Copy, Default)]
pub struct CommandDeadline(Option<Instant>);

impl CommandDeadline {
    pub fn of(limit: Option<Duration>) -> CommandDeadline {
        CommandDeadline(limit.map(|limit| Instant::now() + limit))
    }

    /// Returns the given time, or the rest until the deadline if that is less.
    pub fn at_most(self, time: Duration) -> Duration {
        self.0.map_or(time, |until| time.min(until.saturating_duration_since(Instant::now())))
    }
}

/// Returns the command's standard output; errors contain nothing of it. Its other output is in the server's log.
pub fn output(mut command: Command, limit: Duration, most: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let until = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut running = RunningCommand(command.spawn().map_err(|error| format!("cannot be run: {error}"))?);
    let Some(mut pipe) = running.0.stdout.take() else { return Err("has no output".to_owned()) };
    let mut all = Zeroizing::new(Vec::with_capacity(most + 1));
    let mut piece = Zeroizing::new([0; 4096]);
    loop {
        if !wait::for_socket(pipe.as_raw_fd(), Ready::Read, until) {
            return Err(late(limit));
        }
        // The latch may have ended the wait.
        if !is_readable(pipe.as_raw_fd()) {
            continue;
        }
        match pipe.read(&mut *piece) {
            Ok(0) => break,
            Ok(length) if all.len() + length > most => return Err(format!("writes more than {most} bytes")),
            Ok(length) => all.extend(piece.iter().take(length)),
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
    }
    match ended(&mut running, until) {
        Some(status) if status.success() => Ok(all),
        Some(status) => Err(format!("has ended with {status}")),
        None => Err(late(limit)),
    }
}

fn late(limit: Duration) -> String {
    format!("has not ended within {:.0} s", limit.as_secs_f64())
}

/// Whether a read returns at once.
fn is_readable(descriptor: i32) -> bool {
    let mut asked = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry, which lives during the call.
    unsafe { libc::poll(&mut asked, 1, 0) > 0 }
}

fn ended(running: &mut RunningCommand, until: Instant) -> Option<ExitStatus> {
    while Instant::now() < until {
        if let Some(status) = running.0.try_wait().ok()? {
            return Some(status);
        }
        server::wait::sleep(LOOK);
    }
    None
}
