//! A program that runs beside the servers and is stopped when dropped.

use crate::{Result, env, server, wait};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Returns a name that nothing else in this run has.
pub fn unique(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    format!("{name}.{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A directory of its own below the run's. It is removed when dropped.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Result<Directory> {
        let path = env::run_dir()?.join(unique(name));
        fs::create_dir(&path)?;
        Ok(Directory(path))
    }
}

impl std::ops::Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Process {
    child: Child,
    log: PathBuf,
    is_killed: bool,
}

impl Process {
    /// Starts a program. Both its outputs go to the file `log`.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Process> {
        let file = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|e| format!("cannot run {command:?}: {e}"))?;
        Ok(Process { child, log, is_killed: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the program's children, by the parent's record in /proc.
    pub fn children(&self) -> Result<Vec<u32>> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        Ok(fs::read_to_string(path)?.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Kills the program at once.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.is_killed = true;
    }

    /// Returns the program's output.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Another process may have its number by now.
        if self.is_killed {
            return;
        }
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.said());
        }
        let _ = server::signal(self.pid(), libc::SIGTERM);
        let gone = wait::until("a program to stop", STOP_LIMIT, || Ok(self.child.try_wait()?.map(drop)));
        if gone.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
