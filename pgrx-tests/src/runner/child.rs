//! A running test.

use super::entry::{Entry, whole_of};
use crate::Result;
use crate::server::signal;
use std::fs::{self, File};
use std::io::Error;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Running {
    entry: Entry,
    child: Child,
    log: PathBuf,
    began: Instant,
    is_late: bool,
}

/// The result of a test.
pub struct Outcome {
    pub name: String,
    pub is_ok: bool,
    pub took: Duration,
    /// Processor time of the test, and of everything that it has started and waited for.
    pub used: Duration,
    pub output: String,
}

impl Running {
    /// Whether it is a part of the same test as another one.
    pub fn is_beside(&self, name: &str) -> bool {
        whole_of(name).is_some_and(|whole| whole_of(&self.entry.name) == Some(whole))
    }

    pub fn start(entry: Entry, scratch: &Path) -> Result<Running> {
        let log = scratch.join(crate::process::unique("test"));
        let file = File::create(&log)?;
        let mut command = Command::new(&entry.program);
        command.args(&entry.arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // SAFETY: between fork and exec this makes only a system call.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            });
        }
        let child = command.spawn().map_err(|e| format!("cannot run {command:?}: {e}"))?;
        Ok(Running { entry, child, log, began: Instant::now(), is_late: false })
    }

    /// Returns the test's result, or the test itself while it runs. It is killed after the limit.
    pub fn ended(mut self, limit: Duration) -> Result<std::result::Result<Outcome, Running>> {
        let Some((status, used)) = reaped(self.child.id())? else {
            if !self.is_late && self.began.elapsed() > limit {
                self.is_late = true;
                signal(self.child.id(), libc::SIGKILL)?;
            }
            return Ok(Err(self));
        };
        let mut output = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        fs::remove_file(&self.log)?;
        // A program that ran no test has shown nothing.
        let has_run =
            output.lines().any(|line| line.starts_with("test result: ok. ") && !line.contains(" 0 passed"));
        if self.is_late {
            output += &format!("\nended after {limit:?}\n");
        } else if status == 0 && !has_run {
            output += "\nno test has run\n";
        }
        Ok(Ok(Outcome {
            name: self.entry.name,
            is_ok: status == 0 && has_run,
            took: self.began.elapsed(),
            used,
            output,
        }))
    }
}

/// Returns the status and processor time of a child that has ended.
fn reaped(pid: u32) -> Result<Option<(i32, Duration)>> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut status = 0;
    // SAFETY: the struct contains only numbers, for which zeros are valid values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid during the call. The child is our own, and is waited for only here.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) } {
        0 => Ok(None),
        -1 => Err(format!("cannot wait for a test: {}", Error::last_os_error()).into()),
        _ => Ok(Some((status, duration(usage.ru_utime)? + duration(usage.ru_stime)?))),
    }
}

fn duration(time: libc::timeval) -> Result<Duration> {
    Ok(Duration::from_secs(time.tv_sec.try_into()?) + Duration::from_micros(time.tv_usec.try_into()?))
}
